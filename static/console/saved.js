/**
 * Views that an operator keeps under a name. A view is its address, so that is all that is kept, in this browser only.
 */

import {h} from "./elements.js";

const KEY = "crewel.views";
const MOST = 50;

function read() {
    try {
        const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
        return Array.isArray(kept) ? kept.filter((each) => typeof each?.name === "string" && String(each?.address).startsWith("#/")) : [];
    } catch {
        return []; // of another program, or the browser keeps nothing
    }
}

function write(views) {
    localStorage.setItem(KEY, JSON.stringify(views.slice(-MOST)));
}

/** Shows the kept views, and keeps the one that is on screen. */
export function showSaved() {
    const address = location.hash || "#/";
    const name = h("input", {id: "viewName", required: true, maxlength: "80", autocomplete: "off", value: document.title.replace(/ – Crewel$/, "")});
    const list = h("ul", {class: "saved"});
    const form = h("form", {onsubmit: (event) => {
        event.preventDefault();
        write([...read().filter((each) => each.name !== name.value.trim()), {name: name.value.trim(), address}]);
        show();
    }}, h("p", {class: "field"}, h("label", {for: "viewName"}, "Name of this view"), name,
        h("span", {class: "hint"}, "Kept in this browser, with its filters. To show it to a colleague, send the address.")),
    h("p", {class: "actions"}, h("button", {class: "primary"}, "Save this view")));
    const dialog = h("dialog", {"aria-label": "Saved views"}, h("h2", {}, "Saved views"), list, form,
        h("form", {method: "dialog"}, h("button", {}, "Close")));

    function show() {
        const views = read();
        list.replaceChildren(...views.map((each) => h("li", {},
            h("a", {href: each.address, onclick: () => dialog.close()}, each.name),
            h("button", {type: "button", class: "plain", "aria-label": `Remove ${each.name}`, onclick: () => {
                write(views.filter((other) => other !== each));
                show();
            }}, "Remove"))));
        if (views.length === 0) {
            list.replaceChildren(h("li", {class: "hint"}, "None yet."));
        }
    }

    show();
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}

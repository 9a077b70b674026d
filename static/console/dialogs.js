/**
 * Asks before something is done: what it does, to how many, and why.
 */

import {h, keep, say} from "./elements.js";
import {parse, stringify} from "./exact_numbers.js";

const RANKS = ["view", "operate", "destroy"];

/** Whether an operator with this role may do what needs the other. */
export function may(role, needed) {
    return RANKS.indexOf(role) >= RANKS.indexOf(needed);
}

/**
 * Resolves to `{reason, rate, values}`, the first two of which may be empty, or to null if the operator does not want it after all.
 * `warning` says what stands in its way; `thing` is what a rate counts; without it none is asked for. `leave` is the button that does nothing. `fields` have `name`, `element` and `value()` of what else is asked.
 * The Enter that asked for it, pressed twice or held, does not confirm what cannot be undone (`isFinal`).
 */
export function ask({title, effect, warning = "", button, leave = "Cancel", isFinal = false, hasReason = true, thing = "", fields = []}) {
    return new Promise((resolve) => {
        const reason = h("input", {id: "reason", maxlength: "1024", autocomplete: "off"});
        const rate = h("input", {id: "rate", type: "number", min: "0.001", max: "1000000", step: "any", inputmode: "decimal"});
        const leaving = h("button", {value: "", formnovalidate: true}, leave);
        const onkeydown = (event) => event.repeat && event.key === "Enter" && event.target.tagName !== "TEXTAREA" && event.preventDefault();
        const form = h("form", {method: "dialog", onkeydown},
            h("h2", {}, title),
            h("p", {}, effect),
            warning ? h("p", {class: "trouble"}, warning) : null,
            fields.map(({element}) => element),
            isFinal ? h("p", {class: "trouble"}, "This cannot be undone.") : null,
            hasReason ? h("p", {class: "field"}, h("label", {for: "reason"}, "Reason"), reason,
                h("span", {class: "hint"}, "Optional. The audit records it with your name.")) : "",
            thing ? h("p", {class: "field"}, h("label", {for: "rate"}, `Limit: ${thing} per second`), rate,
                h("span", {class: "hint"}, "Optional. Without a limit all are sent at once, as far as the queues have room.")) : "",
            h("p", {class: "actions"},
                h("button", {value: "yes", class: "primary"}, button),
                leaving));
        const dialog = h("dialog", {"aria-label": title}, form);
        dialog.addEventListener("close", () => {
            dialog.remove();
            const values = () => Object.fromEntries(fields.map((each) => [each.name, each.value()]));
            resolve(dialog.returnValue === "yes" ? {reason: reason.value.trim(), rate: rate.value === "" ? null : Number(rate.value), values: values()} : null);
        });
        document.body.append(dialog);
        dialog.showModal();
        if (isFinal) {
            leaving.focus();
        }
    });
}

/** A field of a dialog that takes JSON, and does not let the dialog be confirmed with anything else. */
export function json(name, label, value, hint = "") {
    const area = h("textarea", {id: `json-${name}`, rows: "8", spellcheck: "false", required: true});
    area.value = stringify(value, 2);
    area.setSelectionRange(0, 0);
    area.addEventListener("input", () => {
        try {
            parse(area.value);
            area.setCustomValidity("");
        } catch (error) {
            area.setCustomValidity(`This is not JSON: ${error.message}`);
        }
    });
    const element = h("p", {class: "field"}, h("label", {for: area.id}, label), area, h("span", {class: "hint"}, hint));
    return {name, element, value: () => parse(area.value)};
}

/** A field of a dialog that is yes or no. */
export function check(name, label, hint = "") {
    const box = h("input", {type: "checkbox", id: `check-${name}`});
    const element = h("p", {class: "field check"}, box, h("label", {for: box.id}, label), h("span", {class: "hint"}, hint));
    return {name, element, value: () => box.checked};
}

/** How long an answer may take until that is said. */
const PATIENCE_MS = 2000;

/**
 * A button that asks, does, and says what came of it in `output`. A question that is a text says why there is nothing to do; work that
 * returns null has nothing left to say. `began` is called when the server is asked.
 */
export function action({name, question, work, output, again, began = () => {}, kind = ""}) {
    const button = h("button", {type: "button", class: kind}, name);
    const show = (came, isTrouble = false) => {
        output.replaceChildren(...[came].flat());
        output.classList.toggle("trouble", isTrouble);
        keep(output);
        say(output.textContent);
    };
    button.addEventListener("click", async () => {
        let told = null;
        button.disabled = true;
        output.dataset.of = name;
        try {
            const asked = await question();
            if (typeof asked === "string") {
                show(asked);
            } else if (output.isConnected) { // else the operator has left the view
                told = await ask(asked);
            }
            if (told !== null) {
                output.dataset.of = asked.title;
                output.replaceChildren();
                output.classList.remove("trouble", "closed");
                const waiting = setTimeout(() => output.hasChildNodes() || output.classList.contains("closed") || output.append(`${name}: no answer yet. While the store is out, the server does what it can, and the entry in the audit waits for the store.`), PATIENCE_MS);
                const working = work(told.reason, told.rate, told.values);
                began();
                const came = await working.finally(() => clearTimeout(waiting));
                if (came !== null) {
                    show(came);
                }
            }
        } catch (error) {
            if (told !== null || output.isConnected) {
                show(error.message, true);
            }
            told = null;
        } finally {
            button.disabled = false; // before the view is shown again, which may disable it
            if (document.activeElement === document.body) {
                button.focus({preventScroll: true}); // a button that is disabled loses it
            }
        }
        if (told !== null) {
            await again();
        }
    });
    return button;
}

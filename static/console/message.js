/**
 * Where a message is: for each receiver, whether it waits, was acknowledged or became a dead letter.
 */

import {get} from "./api.js";
import {facts, h, table} from "./elements.js";
import {ago, things, time} from "./format.js";

function form(id) {
    const field = h("input", {type: "search", value: id, required: true, "aria-label": "Id of a message or a dead letter", placeholder: "Id of a message or a dead letter"});
    return h("form", {class: "filters", role: "search", onsubmit: (event) => {
        event.preventDefault();
        location.hash = `#/message/${encodeURIComponent(field.value.trim())}`;
    }}, field, h("button", {}, "Find"));
}

/** The view without an id: where to enter one. */
export function findMessage() {
    const element = h("div", {class: "stack"}, h("h1", {}, "Where is a message?"), form(""),
        h("p", {class: "hint"}, "The id is in the reply to a stored publish (ext.publish.id), in the queue of a receiver, and in each dead letter."));
    return {element, refresh: () => undefined};
}

export function message({words: [id], me}) {
    const body = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, `Message ${id}`), form(id), body);

    async function refresh() {
        let told;
        try {
            told = await get(`/messages/${encodeURIComponent(id)}`);
        } catch (error) {
            if (error.status !== 404) {
                throw error;
            }
            body.replaceChildren(h("p", {}, error.message), /^[0-9]+-[0-9]+$/.test(id) ? h("p", {class: "hint"}, gone(me, `contains=${id}`)) : "");
            return;
        }
        const rows = [
            ...told.receivers.map((each) => [receiver(each.receiver), state(each), each.at === null ? "" : time(each.at), more(each, me)]),
            ...told.notFor.map((each) => [receiver(each.receiver), h("span", {class: "hint"}, "not for it"), "", each.why]),
        ];
        body.replaceChildren(
            h("section", {class: "card"}, facts([
                ["Channel", told.channel || "no longer recorded"],
                ["Published", told.recorded ? ago(told.publishedAt) : "no longer recorded"],
                ["Redrive of", told.redriveOf],
                ["Redriven as", told.redrivenAs.map((each) => [h("a", {href: `#/message/${each}`}, each), " "]).flat().length
                    ? h("span", {}, told.redrivenAs.map((each) => [h("a", {href: `#/message/${each}`}, each), " "]).flat()) : ""],
            ])),
            table("Receivers", ["Receiver", "State", "At", "More"], rows, "It had no receiver."),
            told.partial ? h("p", {class: "trouble"}, "There are more facts than one request can read: later ones may be missing.") : "");
    }

    return {element, refresh, everyMs: 5000};
}

function receiver(name) {
    return /^client\/[^/]+\/.+/.test(name) ? h("a", {href: `#/receivers/${name.split("/").map(encodeURIComponent).join("/")}`}, name) : name;
}

/** A link to the audit, which has who discarded or redrove dead letters, and why. Operators of some channels do not see it. */
function gone(me, search) {
    return me.everywhere === null ? null : h("a", {href: `#/audit?${search}`}, "Who did what, in the audit");
}

function state(each) {
    const kind = {acknowledged: "good", "dead letter": "bad"}[each.state] ?? "";
    return h("span", {class: `mark ${kind}`}, each.state);
}

function more(each, me) {
    const parts = [each.code, each.reason, each.why, each.attempts ? things(each.attempts, "attempt") : ""].filter(Boolean).join(", ");
    return h("span", {},
        parts,
        each.letter ? [" ", h("a", {href: `#/dead-letters/${each.letter}`}, `dead letter ${each.letter}`)] : null,
        each.redrivenAs ? [" ", h("a", {href: `#/message/${each.redrivenAs}`}, `redriven as ${each.redrivenAs}`)] : null,
        each.state === "dead letter" && !each.letter && !each.redrivenAs ? [parts && ", ", "no longer kept. ", gone(me, `what=discard&since=${each.at}`)] : null);
}

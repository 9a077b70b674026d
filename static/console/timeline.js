/**
 * What happened to the servers in the last day: starts and stops, outages, take-overs, refused logins.
 */

import {get} from "./api.js";
import {h, missing, parts, swap, table} from "./elements.js";
import {count, span, things, time} from "./format.js";

const SHORT = 8;
const ENDED = {stop: "after a stop", crash: "the run before ended without a stop: it was killed, or has crashed"};

/** What each kind is called, what is said of it, and whether it is bad. */
const KINDS = {
    started: ["started", ({version, after}) => [`version ${version}`, ENDED[after]].filter(Boolean).join(", "), ({after}) => after === "crash"],
    stopped: ["stopped", () => "", () => false],
    "store outage": ["the store could not be used", ({why, store, until}) => [why.join("; "), until !== null && store && `afterwards, ${store}`].filter(Boolean).join("; "), () => true],
    "task failed": ["a task of the server failed", ({why}) => why.join("; "), () => true],
    "out of file descriptors": ["no file descriptors were left", ({why}) => why.join("; "), () => true],
    "took over": ["took over sessions", ({sessions, of}) => `${things(sessions, "session")} of ${of.join(", ") || "a node that died"}`, () => true],
    "logins refused": ["logins were refused", ({code, reason, count: number, name, address}) =>
        [`${count(number)} with ${code}`, reason, [name && `the last one for ${name}`, address && `from ${address}`].filter(Boolean).join(" ")].filter(Boolean).join("; "), () => false],
};

function row(event) {
    const [what, said, isBad] = KINDS[event.what] ?? [event.what, ({why = []}) => why.join("; "), () => false];
    const lasted = event.until === null ? `for ${span(Date.now() - event.at)}, and still` : event.until - event.at >= 1000 ? `for ${span(event.until - event.at)}` : "";
    return [
        h("span", {}, h("span", {class: "id"}, time(event.at)), h("span", {class: "hint id"}, ` ${span(Date.now() - event.at)} ago`)),
        h("span", {class: `mark ${isBad(event) ? "bad" : ""}`}, what),
        lasted,
        parts(said(event), "."),
        event.nodes.join(", "),
    ];
}

function rows({events}, most) {
    return table("The last day of the servers", ["When", "What", "How long", "Details", "Server"], events.slice(0, most).map(row),
        "Nothing happened: no start, stop, outage or refused login.");
}

function hints({whole, ...told}) {
    return [
        missing(told, "what they have noted is missing here"),
        whole ? "" : h("p", {class: "trouble"}, "The store cannot be read: this is what the servers have noted since they started."),
    ];
}

/** The newest events, for the overview. */
export function shortTimeline(told) {
    const more = told.events.length - SHORT;
    return [
        h("h2", {}, "The last day of the servers"), ...hints(told), rows(told, SHORT),
        more > 0 ? h("p", {}, h("a", {href: "#/timeline"}, `All ${count(told.events.length)} events of the last day`)) : "",
    ];
}

/** All of them. */
export function timeline() {
    const list = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, "The last day of the servers"), list);

    async function refresh() {
        const told = await get("/timeline");
        swap(list, ...hints(told), rows(told, told.events.length));
    }

    return {element, refresh, everyMs: 5000};
}

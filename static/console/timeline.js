/**
 * What happened to the servers in the last day: starts and stops, outages, take-overs, refused logins.
 */

import {get} from "./api.js";
import {coded, h, missing, swap, table} from "./elements.js";
import {capital, count, span, things, time} from "./format.js";

const SHORT = 8;
const HOUR_MS = 3_600_000;
/** After an outage, the servers compare what the store has with what it had answered, and note what is lost within this time. */
const COMPARED_MS = 15_000;
const ENDED = {stop: "after a stop", crash: "the run before ended without a stop: it was killed, or has crashed"};

/** Why something lasted, in words. */
function reasons(why) {
    return why.join("; ") || "the reason is not known";
}

/** What each kind is called, what is said of it, and whether it is bad. */
const KINDS = {
    started: ["started", ({version, after}) => [`version ${version}`, ENDED[after]].filter(Boolean).join(", "), ({after}) => after === "crash"],
    stopped: ["stopped", () => "", () => false],
    "store outage": ["the store could not be used", ({why, store, until, times}) => [times && `${count(times)} times in a row`, reasons(why), until !== null && store && `afterwards, ${store}`].filter(Boolean).join("; "), () => true],
    "store lost data": ["the store had lost data", ({count: number}) => `${things(number, "message")} that ${number === 1 ? "was" : "were"} answered as stored`, () => true],
    "task failed": ["a task of the server failed", ({why}) => why.join("; "), () => true],
    "out of file descriptors": ["no file descriptors were left", ({why}) => why.join("; "), () => true],
    "took over": ["took over sessions", ({sessions, of, planned}) => `${things(sessions, "session")} of ${of.join(", ") || "a node that died"}${planned ? ", after a planned stop" : ""}`, ({planned}) => !planned],
    "logins refused": ["logins were refused", ({code, reason, count: number, name, address}) =>
        [`${count(number)} with ${code}`, reason, [name && `the last one for ${name}`, address && `from ${address}`].filter(Boolean).join(" ")].filter(Boolean).join("; "), () => false],
};

function row(event) {
    const [what, said, isBad] = KINDS[event.what] ?? [event.what, ({why = []}) => why.join("; "), () => false];
    const lasted = event.until === null ? `for ${span(Date.now() - event.at)}, and still` : event.why && event.until > event.at ? `for ${span(event.until - event.at)}` : "";
    return [
        h("span", {}, h("span", {class: "id"}, time(event.at)), h("span", {class: "hint id"}, ` ${span(Date.now() - event.at)} ago`)),
        h("span", {class: `mark ${isBad(event) ? "bad" : ""}`}, what),
        lasted && h("span", {class: "id"}, lasted),
        coded(said(event)),
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

/** The outages of the store of the last hour that are over, as calm cards of the overview. */
export function pastOutages({events}) {
    const isRecent = ({until}) => until !== null && Date.now() - until < HOUR_MS;
    const isInOrder = !events.some(({what, until}) => what === "store outage" && until === null);
    const losses = events.filter(({what}) => what === "store lost data");
    return events.filter((each) => each.what === "store outage" && isRecent(each)).map(({at, until, why, store, times}) => {
        const lost = losses.filter((each) => each.at >= at && each.at < until + COMPARED_MS).reduce((sum, each) => sum + each.count, 0);
        const after = capital([store, lost ? `${things(lost, "message")} that ${lost === 1 ? "was" : "were"} answered as stored ${lost === 1 ? "is" : "are"} lost` : Date.now() > until + COMPARED_MS ? "nothing that was answered is lost" : ""].filter(Boolean).join(", and "));
        return h("article", {class: `finding ${lost ? "bad" : "info"}`},
            h("h3", {}, h("a", {href: "#/timeline"}, `The store could not be used ${times > 1 ? `${times} times within` : "for"} ${span(until - at)}`), h("span", {class: "hint"}, " at ", h("span", {class: "id"}, time(at)), `, ${span(Date.now() - at)} ago${isInOrder ? "; it is in order again" : ""}`)),
            h("p", {}, coded(capital(reasons(why)))),
            h("p", {class: "hint"}, `${after}. Publishers got errors meanwhile.`));
    });
}

/** The newest events, for the overview. */
export function shortTimeline(told) {
    return [
        h("h2", {}, "The last day of the servers"), ...hints(told), rows(told, SHORT),
        h("p", {}, h("a", {href: "#/timeline"}, told.events.length > SHORT ? `All ${count(told.events.length)} events of the last day` : "The last day on a page of its own")),
    ];
}

/** All of them. */
export function timeline() {
    const list = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/"}, "Overview")), h("h1", {}, "The last day of the servers"), list);

    async function refresh() {
        const told = await get("/timeline");
        swap(list, ...hints(told), rows(told, told.events.length));
    }

    return {element, refresh, everyMs: 5000};
}

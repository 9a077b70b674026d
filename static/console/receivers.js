/**
 * The receivers: sessions, filtered, sorted and paged by the server; and what one of them has in its queue.
 */

import {call, get} from "./api.js";
import {action, may} from "./dialogs.js";
import {facts, filters, h, pager, select, table} from "./elements.js";
import {ago, bytes, count, span, things} from "./format.js";

const PAGE = 100;
const SHOWN = 20;
const HEADINGS = ["Receiver", "State", {text: "Waiting", class: "number"}, {text: "Size", class: "number"}, "Transport", "Cause"];
const SORTS = [["name", "Name"], ["waiting", "Messages that wait"], ["waitingBytes", "Their size"]];

export function receivers({query, go}) {
    const asked = Object.fromEntries(query);
    const sort = asked.sort ?? "name";
    const form = filters([["contains", "Name contains", "search"]], asked, go,
        select("state", "State", [["", "any"], ["ALIVE", "ALIVE"], ["POLLING", "POLLING"], ["DEAD", "DEAD"]], asked.state ?? "", go),
        select("held", "On hold", [["", "any"], ["true", "yes"], ["false", "no"]], asked.held ?? "", go),
        select("sort", "Sorted by", SORTS, sort, (changes) => go({...changes, sort: changes.sort === "name" ? "" : changes.sort})));
    const list = h("div");
    const element = h("div", {class: "stack"}, h("h1", {}, "Receivers"), form, list);

    async function refresh() {
        const held = {true: "false", false: "true"}[asked.held];
        const told = await get("/sessions", {
            contains: asked.contains, state: asked.state, active: held, sort, after: asked.after, count: PAGE,
        });
        list.replaceChildren(
            table("Receivers", HEADINGS, told.sessions.map(row), "No receiver matches."),
            pager(asked, told.next, go,
                told.unnamed ? h("span", {class: "hint"}, `${things(told.unnamed, "session")} without a name are not listed.`) : []));
    }

    return {element, refresh, everyMs: 5000};
}

function row(session) {
    return [
        h("a", {href: `#/receivers/${session.name.split("/").map(encodeURIComponent).join("/")}`}, session.name),
        state(session),
        count(session.waiting),
        bytes(session.waitingBytes),
        session.transport ?? "none",
        cause(session),
    ];
}

function state(session) {
    const held = session.active ? "" : " on hold";
    return h("span", {class: `mark ${session.active && session.state === "ALIVE" ? "good" : "bad"}`}, session.state + held);
}

function cause(session) {
    const {holdback, lastFailure, ends, retry} = session;
    const parts = [
        holdback && [`on hold by ${holdback.who}`, holdback.code, holdback.reason].filter(Boolean).join(": "),
        !holdback && lastFailure && `${lastFailure.code}: ${lastFailure.reason}`,
        retry && `retry ${retry.number}`,
        ends && `ends in ${span(ends.at - Date.now())}: ${ends.why}`,
    ];
    return parts.filter(Boolean).join("; ");
}

/** What can be done to a receiver: the operation, the role it needs, and what it does to how many messages. */
const ACTIONS = [
    ["activate", "Release", "operate", (each) => !each.active,
        (each) => `Messages go to ${each.name} again; the held message comes first. ${waiting(each)}`],
    ["hold", "Hold", "operate", (each) => each.active && each.reliable,
        (each) => `Messages queue up for ${each.name} until you release it. ${waiting(each)}`],
    ["retry", "Retry now", "operate", (each) => each.retry !== null,
        (each) => `Ends the pause after the failure of ${each.name}: its queue is sent now. ${waiting(each)}`],
    ["skip", "Skip one", "operate", (each) => each.waiting > 0,
        (each) => `Turns 1 message, the held one or the first, into a dead letter. ${waiting(each)}`],
    ["drain", "Drain", "operate", (each) => each.waiting > 0,
        (each) => `Turns the whole queue into dead letters: ${things(each.waiting, "message")}.`],
    ["ping", "Ping", "operate", (each) => each.state === "ALIVE", (each) => `Sends a ping to the client of ${each.name}.`],
    ["clear", "Clear", "destroy", (each) => each.waiting > 0,
        (each) => `Drops the whole queue without dead letters: ${things(each.waiting, "message")}.`],
    ["kill", "End", "destroy", () => true,
        (each) => `Ends the session ${each.name}. Its queue becomes dead letters: ${things(each.waiting, "message")}.`],
];

function waiting(session) {
    return `${things(session.waiting, "message")} wait${session.waiting === 1 ? "s" : ""}.`;
}

const RESULTS = {
    letters: (number) => `${things(number, "message")} became dead letters.`,
    cleared: (number) => `${things(number, "message")} dropped.`,
    retried: (is) => is ? "Sent again." : "Nothing waited for a retry.",
    pingMs: (ms) => `Round trip: ${ms} ms.`,
    killed: () => "The session has ended.",
};

export function receiver({words: [name], me, again}) {
    const path = `/sessions/${name.replace(/^client\//, "").split("/").map(encodeURIComponent).join("/")}`;
    const head = h("div", {class: "stack"});
    const actions = h("div", {class: "actions"});
    const output = h("p", {class: "outcome"});
    const queue = h("section", {class: "stack"});
    const element = h("div", {class: "stack"}, h("p", {}, h("a", {href: "#/receivers"}, "All receivers")), h("h1", {}, name), head, actions, output, queue);
    let known = "";

    async function refresh() {
        let told;
        try {
            told = await get(path);
        } catch (error) {
            if (error.status !== 404) {
                throw error;
            }
            head.replaceChildren(h("p", {class: "hint"}, "There is no such session, or not any more. ",
                h("a", {href: `#/dead-letters?receiver=${encodeURIComponent(name)}`}, "Its dead letters")));
            actions.replaceChildren();
            queue.replaceChildren();
            return;
        }
        head.replaceChildren(about(told));
        const possible = ACTIONS.filter(([, , role, fits]) => may(me.role, role) && fits(told));
        if (known !== possible.map(([verb]) => verb).join()) { // a button under the pointer stays where it is
            known = possible.map(([verb]) => verb).join();
            actions.replaceChildren(...possible.map((each) => button(each)));
        }
        const messages = await get(`${path}/messages`, {count: SHOWN});
        queue.replaceChildren(h("h2", {}, `Queue: ${things(messages.waiting, "message")}`),
            h("p", {class: "hint"}, `The first ${SHOWN}. Looking changes nothing.`),
            table("Queue", ["Message", "Channel", "Data"], messages.messages.map(message), "Nothing waits."));
    }

    function button([verb, text, role, , effect]) {
        return action({
            name: text,
            question: async () => ({title: `${text}: ${name}`, effect: effect(await get(path)), button: text, isFinal: role === "destroy"}),
            work: async (reason) => {
                const told = await call("POST", `${path}/${verb}`, {body: reason ? {reason} : undefined});
                const [key] = Object.keys(RESULTS).filter((each) => each in told && !(each === "pingMs" && verb !== "ping"));
                return key === undefined ? "Done." : RESULTS[key](told[key]);
            },
            output,
            again,
            kind: role === "destroy" ? "danger" : "",
        });
    }

    return {element, refresh, everyMs: 3000};
}

function about(session) {
    const {holdback} = session;
    return h("section", {class: "card"}, facts([
        ["State", state(session)],
        ["On hold since", holdback && `${ago(holdback.since)}, by ${holdback.who}`],
        ["Cause", holdback && [holdback.code, holdback.reason].filter(Boolean).join(": ")],
        ["Held message", holdback?.id && h("a", {href: `#/message/${encodeURIComponent(holdback.id)}`}, holdback.id)],
        ["Last failure", session.lastFailure && `${session.lastFailure.code}: ${session.lastFailure.reason}`],
        ["Waiting", `${things(session.waiting, "message")}, ${bytes(session.waitingBytes)}, of at most ${count(session.maxEntries)}`],
        ["Transport", session.transport ?? "not connected"],
        ["Ends", session.ends && `in ${span(session.ends.at - Date.now())}: ${session.ends.why}`],
        ["Since", ago(session.loggedIn)],
        ["Subscriptions", session.subscriptions.join(", ") || "none"],
        ["Dead letters", h("a", {href: `#/dead-letters?receiver=${encodeURIComponent(session.name)}`}, "of this receiver")],
    ]));
}

function message(each) {
    const id = each.ext?.update?.id ?? each.id ?? "";
    return [/^[0-9]+$/.test(id) ? h("a", {href: `#/message/${id}`}, id) : id, each.channel, h("code", {class: "data"}, JSON.stringify(each.data))];
}

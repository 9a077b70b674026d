/**
 * One consumer group: how far it is, how fast, and which member has what.
 */

import {find} from "./api.js";
import {causesOf} from "./conditions.js";
import {facts, h, missing, receiverLink, swap, table, topicLink} from "./elements.js";
import {ago, count, span, things} from "./format.js";
import {groupOf} from "./resource.js";
import {ratesBy, sparkline, withRates} from "./sparkline.js";

const NAMED = 3;
const NUMBER = {class: "number"};
/** The cause that the word says already. */
const AWAY = "its client is away";
const HEADINGS = [{text: "Member", class: "id"}, "State", {text: "Has", ...NUMBER}, {text: "Oldest", class: "id"}, "Messages"];

/** The view of a group. */
export function hrefOfGroup(pattern, name) {
    return `#/groups/${encodeURIComponent(pattern)}/${encodeURIComponent(name)}`;
}

export function group({words: [pattern, name]}) {
    const head = h("div", {class: "stack"});
    const members = h("section", {class: "stack"});
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/receivers?kind=group"}, "All groups")), h("h1", {}, `Group ${name} on ${pattern}`), head, members);

    async function refresh() {
        const [told, ...rates] = await Promise.all([find(groupOf(pattern), {name}), ratesBy("group"), ratesBy("receiver")]);
        if (!told) {
            swap(head, h("p", {class: "hint"}, "There is no such group now. A group begins with its first member, and ends with its last one, unless groups.keep names it."));
            members.replaceChildren();
            return;
        }
        const isStuck = told.waiting > 0 && !told.members.some((each) => each.state === "ALIVE" && !each.held && !each.cause);
        const last = told.members.reduce((latest, each) => (each.since ?? 0) > (latest?.since ?? 0) ? each : latest, null);
        const has = told.members.reduce((sum, each) => sum + each.open, 0);
        swap(head, missing(told, "their members are missing here"), isStuck ? h("article", {class: "finding bad"},
            h("h2", {}, "No member takes its messages", last ? h("span", {class: "hint"}, ` since ${ago(last.since)}`) : ""),
            h("p", {}, told.members.length ? told.members.slice(0, NAMED).map((each, index) => [index ? "; " : "", `${each.name}: ${each.cause || (each.held ? "on hold" : "away")}`]).flat() : "It has no member."),
            h("p", {class: "hint advice"}, told.advice)) : "", ...causesOf(told), h("section", {class: "card"}, facts([
            ["Lag", `${things(told.waiting, "message")} that no member has yet, of at most ${count(told.maxEntries)}`],
            ["Position", told.next ? ["before ", h("a", {href: `#/message/${told.next}`}, `message ${told.next}`), `, published ${ago(told.oldest)}`] : "at the end: its members have all messages"],
            ["With members", things(has, "message")],
            ["Rate", rates[0] && sparkline(rates[0][`${pattern} ${name}`])],
            ["Channel", topicLink(pattern)],
            ["Without members", told.kept ? "it keeps its messages (groups.keep)" : "it ends, and its waiting messages with it"],
        ])));
        const rows = told.members.map(row);
        swap(members, h("h2", {}, `Members: ${count(told.members.length)}`),
            table("Members", ...withRates(HEADINGS, rows, told.members.map((each) => each.name), rates[1]), "No member: nothing takes the messages of the group at present."));
    }

    return {element, refresh, everyMs: 5000, hears: ["held", "released", "died"]};
}

function row(each) {
    const isStuck = each.held || (each.state !== "ALIVE" && each.open > 0);
    const ids = each.messages.map((id) => [h("a", {href: `#/message/${id}`}, id), " "]);
    return [
        receiverLink(each.name),
        h("span", {}, h("span", {class: `mark ${isStuck ? "bad" : each.state === "ALIVE" ? "good" : ""}`, title: `State in the API: ${each.state}.`}, each.held ? "on hold" : each.state === "ALIVE" ? "connected" : "away"), h("span", {class: "hint"}, each.cause && each.cause !== AWAY ? ` ${each.cause}` : "", each.since ? ` since ${ago(each.since)}` : "")),
        count(each.open),
        each.oldest === null ? "" : `${span(Date.now() - each.oldest)} ago`,
        h("span", {class: "data"}, ids, each.open > each.messages.length ? `and ${count(each.open - each.messages.length)} more` : ""),
    ];
}

/**
 * The topics: by prefix, with state and history; and one of them, with its subscribers, its messages, and its end.
 */

import {call, find, get, post} from "./api.js";
import {action, check, json, may} from "./dialogs.js";
import {data, facts, filters, h, missing, result, pageSize, pager, parts, pathOf, select, swap, table} from "./elements.js";
import {ago, count, millisecondsOf, span, things, time} from "./format.js";
import {hrefOfGroup} from "./groups.js";
import {topicOf} from "./resource.js";
import {ratesBy, sparkline, withRates} from "./sparkline.js";

const PAGE = 100;
/** Prefixes that are shown on demand. */
const MANY = 1000;
const SHOWN = 20;
const NAMED = 200;
const MEMBERS = 8;
/** How a topic stands, in plain words: how that looks, and what it means. */
const STATES = {
    "in use": ["good", "It has subscribers, or messages of it are kept or wait."],
    "no subscribers": ["", "Something was published to it, and no client receives it: it ends after its destroy delay, unless more is published."],
    "nothing published yet": ["", "It has subscribers, and gets its settings with the first publish."],
    erased: ["bad", "It is gone, but queues still hold messages of it, which are delivered."],
};
/** What the list has, by what the address says: the topics of the server itself are not those that an operator looks for. */
const SHOWING = [["", "usual ones"], ["true", "the server's own"]];
const NUMBER = {class: "number"};
/** How the channels begin on which the server reports its own state. */
const INTERNAL = "/__sys__";

/** The columns: a heading, and what stands below it. */
const COLUMNS = [
    [{text: "Topic", class: "name"}, (topic) => h("a", {href: hrefOf(topic.channel)}, parts(topic.channel, "/"))],
    ["State", state],
    [{text: "History", ...NUMBER}, history],
    [{text: "Waiting", ...NUMBER}, (topic) => count(topic.queued)],
    [{text: "Subscribers", ...NUMBER}, (topic) => h("span", {}, topic.subscribers || !topic.groups.length ? count(topic.subscribers) : "", topic.groups.length ? `${topic.subscribers ? " and " : ""}${things(topic.groups.length, "group")}` : "")],
    ["Newest in history", (topic) => topic.newest ? ago(millisecondsOf(topic.newest)) : ""],
];

export function hrefOf(channel) {
    return `#/topics${pathOf(channel)}`;
}

/** The prefix whose topics the pattern has: "/kitchen" of "/kitchen/**"; null if it is no such pattern. */
function prefixOf(pattern) {
    return pattern === "" ? "" : pattern.endsWith("/**") ? pattern.slice(0, -3) : null;
}

export function topics({query, go}) {
    const asked = Object.fromEntries(query);
    const pattern = asked.pattern ?? "";
    const below = prefixOf(pattern);
    const form = filters([["pattern", "Channel or pattern: /kitchen/**", "search"]], asked, go,
        select("condition", "State", [["", "any"], ...Object.keys(STATES).map((word) => [word, word])], asked.condition ?? "", (changes) => go({...changes, state: ""})),
        select("internal", "Topics", SHOWING, asked.internal ?? "", go));
    const internal = asked.internal || String(pattern.startsWith(INTERNAL));
    const most = asked.prefixes === String(MANY) ? MANY : PAGE;
    const prefixes = h("section", {class: "card", hidden: true, "aria-label": "By prefix"});
    const list = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Topics"), form, prefixes, list);

    async function refresh() {
        const [rates, told, counted] = await Promise.all([
            ratesBy("topic"),
            get("/topics", {pattern, state: asked.state, condition: asked.condition, internal, after: asked.after, count: pageSize(PAGE)}),
            below === null ? null : get("/prefixes", {below, internal, count: most}),
        ]);
        prefixes.hidden = counted === null || (counted.prefixes.length === 0 && below === "");
        swap(prefixes, ...counted === null ? [] : tree(below, counted, most, go));
        swap(list,
            missing(told, "topics may be missing here"),
            table("Topics", ...withRates(COLUMNS.map(([heading]) => heading), told.topics.map((each) => COLUMNS.map(([, cell]) => cell(each))), told.topics.map((each) => each.channel), rates), "No topic matches. A topic begins with the first publish or subscription to its channel."),
            pager(asked, told.next, go));
    }

    return {element, refresh, everyMs: 10_000};
}

/** The way from the first segment to here, and what is directly below. */
function tree(below, {prefixes, next, ...told}, most, go) {
    const steps = below.split("/").slice(1);
    const step = (text, prefix) => h("button", {type: "button", class: "plain", onclick: () => go({pattern: prefix && `${prefix}/**`, after: ""})}, text);
    const way = [step("All topics", ""), ...steps.map((text, index) => ["/", step(text, `/${steps.slice(0, index + 1).join("/")}`)]).flat()];
    const rows = prefixes.map(({prefix, topics: number, deeper}) => h("li", {},
        h("button", {type: "button", class: "plain", onclick: () => go({pattern: deeper ? `${prefix}/**` : prefix, after: ""})},
            deeper ? `${prefix}/…` : prefix),
        h("span", {class: "number"}, things(number, "topic"))));
    return [
        h("h2", {}, "By prefix"),
        h("p", {class: "way"}, way),
        h("ul", {class: "tree"}, rows),
        missing(told, "topics may be missing here"),
        next && most < MANY ? h("p", {class: "actions"}, h("button", {type: "button", onclick: () => go({prefixes: MANY})}, `Show the first ${count(MANY)}`)) : null,
        next && most === MANY ? h("p", {class: "hint"}, `The first ${count(MANY)}. Filter by a pattern to see others.`) : null,
    ].filter(Boolean);
}

function state({state: word, condition = word}) {
    const [look, meaning] = STATES[condition] ?? ["", ""];
    return h("span", {class: `mark ${look}`, title: `${meaning} State in the API: ${word}.`}, condition);
}

function history({history: {entries, maxEntries}}) {
    return maxEntries ? `${count(entries)} of ${count(maxEntries)}` : "none";
}

/** What can be done to a topic: its name, kind of resource and query, the sentence about its effect, and what came of it. */
const ACTIONS = [
    ["Clear history", "history", {}, (topic) => topic.history.entries > 0,
        (topic) => `Removes ${things(topic.history.entries, "message")} from the history. Queued messages are delivered, and subscribers are not informed.`,
        (told) => `${things(told.cleared, "message")} removed.`],
    ["Erase", "topics", {}, () => true,
        (topic) => `Ends the topic: ${things(topic.history.entries, "message")} of its history are removed, and ${things(topic.exactSubscribers, "subscription")} to exactly this channel end. ${things(topic.queued, "queued message")} will still be delivered.`,
        goneFrom],
    ["Erase with its queue", "topics", {force: "true"}, (topic) => topic.queued > 0,
        (topic) => `Ends the topic, and drops ${things(topic.queued, "queued message")} without dead letters.`,
        goneFrom],
];

function goneFrom({state}) {
    return state === "SOFTERASED" ? "Erased. Queued messages of it will still be delivered." : "Erased.";
}

export function topic({words: [name], query, go, me, again}) {
    const channel = `/${name.replace(/\/$/, "")}`;
    const most = Number(query.get("count") ?? SHOWN);
    const head = h("div", {class: "stack"});
    const actions = h("div", {class: "actions"});
    const output = h("p", {class: "outcome"});
    const names = h("div");
    const subscribers = h("details", {class: "card", ontoggle: () => again()}, h("summary", {}, h("h2", {}, "Subscribers")), names);
    const messages = h("section", {class: "stack"});
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/topics"}, "All topics")), h("h1", {}, channel),
        head, actions, result(output), subscribers, messages);
    let known = null;
    let isOpened = false;

    async function refresh() {
        const told = await find(topicOf(channel));
        if (!told) {
            swap(head, h("p", {class: "hint"}, "There is no such topic: nothing was published to this channel, or it has ended."), await erased());
            subscribers.hidden = true;
            actions.replaceChildren();
            known = null; // it may come back
            messages.replaceChildren();
            return;
        }
        subscribers.hidden = false;
        const possible = may(told.may, "destroy") ? ACTIONS.filter(([, , , fits]) => fits(told)) : [];
        const offered = possible.map(([text]) => text).join();
        if (known !== offered) {
            known = offered;
            swap(actions, ...may(told.may, "operate") ? [publishing()] : [], ...possible.map(button));
        }
        const [past, rates] = await Promise.all([get(topicOf(channel, "history"), {count: most}), ratesBy("topic"), showSubscribers()]);
        told.history.entries = past.entries; // one view has one number of them
        swap(head, missing(told, "what it has of this topic is missing here"), about(told, rates?.[channel]));
        if (!isOpened && told.queued > 0 && told.subscribers > 0) { // for whom they wait
            isOpened = subscribers.open = true;
        }
        swap(messages,
            h("h2", {}, `History: ${things(past.entries, "message")}`),
            past.messages.length > 0 ? h("p", {class: "hint"}, `The newest ${count(past.messages.length)}. Viewing changes nothing.`) : "",
            table("History", ["Message", "Published", "Data"], past.messages.map(message),
                told.history.maxEntries ? "The history is empty." : "This topic keeps no history (history.max_entries)."),
            past.entries > past.messages.length
                ? h("p", {class: "actions"}, h("button", {type: "button", onclick: () => go({count: most < 100 ? "100" : "1000"})}, "Show more")) : "");
    }

    /** Who has erased it, as the audit tells those who may read it. */
    async function erased() {
        if (me.everywhere === null) {
            return "";
        }
        const {entries} = await get("/audit", {about: channel, what: "erase", outcome: "done", count: 1});
        return entries.length ? h("p", {}, `Erased by ${entries[0].who} at ${time(entries[0].at)}${entries[0].reason ? `: ${entries[0].reason}` : ""}. `,
            h("a", {href: `#/audit?about=${encodeURIComponent(channel)}`}, "In the audit")) : "";
    }

    async function showSubscribers() {
        if (!subscribers.open) {
            return;
        }
        const {result} = await post("/commands", {command: `__cmd:topic${channel}/?subscribers`});
        swap(names,
            h("ul", {class: "names"}, result.slice(0, NAMED).map((each) => h("li", {}, h("a", {href: `#/receivers${pathOf(`/${each}`)}`}, each)))),
            h("p", {class: "hint"}, result.length > NAMED ? `and ${count(result.length - NAMED)} more` : result.length ? "" : "None with a name. Members of groups are listed above."));
    }

    /** Publishes what the operator writes: to see whether it arrives. */
    function publishing() {
        const fields = [json("data", "Data", {test: true}, "JSON"), check("persistent", "Store it", "Subscribers that are away get it too.")];
        return action({
            name: "Publish a test message",
            question: async () => {
                const told = await get(topicOf(channel)).catch(() => null);
                const subscribers = told === null ? "" : ` It has ${things(told.subscribers, "subscriber")}${told.groups.length ? ` and ${things(told.groups.length, "group")}` : ""}.`;
                return {title: "Publish a test message", effect: `Publishes a message to ${channel}, as the server itself.${subscribers}`, button: "Publish", fields};
            },
            work: async (reason, _, {data: value, persistent}) => {
                const told = await post(topicOf(channel, "publish"), {data: value, persistent, ...(reason ? {reason} : {})});
                return told.id === null ? "Published. It was not stored: what became of it is not recorded." : ["Published as ", h("a", {href: `#/message/${told.id}`}, `message ${told.id}`), "."];
            },
            output,
            again,
        });
    }

    function button([text, kind, more, , effect, done]) {
        return action({
            name: text,
            question: async () => ({title: `${text}: ${channel}`, effect: effect(await get(topicOf(channel))), button: text, isFinal: true}),
            work: async (reason) => done(await call("DELETE", topicOf(channel, kind), {query: {...more, reason}})),
            output,
            again,
            kind: "danger",
        });
    }

    return {element, refresh, everyMs: 5000};
}

function about(told, rates) {
    return h("section", {class: "card"}, facts([
        ["State", state(told)],
        ["History", history(told)],
        ["Newest", told.newest && ago(millisecondsOf(told.newest))],
        ["Last ten minutes", rates && sparkline(rates)],
        ["Waiting", `${things(told.queued, "message")} in queues, once for each receiver`],
        ["Subscribers", subscribersText(told)],
        ["Groups", told.groups.length ? told.groups.map(group) : null],
        ["Accepts", told.readonly ? "one message only" : ""],
        ["Destroy delay", told.destroyDelay < 0 ? "without limit" : span(told.destroyDelay)],
        ["Ends in", told.diesIn !== null && told.diesIn !== undefined ? span(told.diesIn) : ""],
        ["Dead letters", h("a", {href: `#/dead-letters?channel=${encodeURIComponent(told.channel)}`}, "of this channel")],
    ]));
}

/** "3: 1 by this name, 2 by a pattern" */
function subscribersText({subscribers, exactSubscribers: exact, groups}) {
    const others = subscribers - exact;
    const own = exact && others ? `${count(subscribers)}: ${count(exact)} by this name, ${count(others)} by a pattern`
        : subscribers ? `${count(subscribers)}, by ${exact ? "this name" : "a pattern"}` : "";
    return groups.length ? [own, `${things(groups.length, "group")}, below`].filter(Boolean).join(", and ") : own || "none";
}

/** A consumer group with links to some of its members. */
function group({name, pattern, members, waiting}) {
    const some = members.slice(0, MEMBERS).map((each) => [h("a", {href: `#/receivers${pathOf(`/${each}`)}`}, each), " "]);
    const more = members.length > MEMBERS ? `and ${count(members.length - MEMBERS)} more` : "";
    return h("p", {}, h("a", {href: hrefOfGroup(pattern, name)}, `${name} on ${pattern}`), `: ${things(waiting, "message")} waiting, ${things(members.length, "member")} `, some, more);
}

function message(each) {
    const id = each.ext?.update?.id ?? each.id ?? "";
    const isOurs = /^[0-9]+$/.test(id);
    return [
        isOurs ? h("a", {href: `#/message/${id}`}, id) : id,
        isOurs ? ago(millisecondsOf(id)) : "",
        data(each.data),
    ];
}

/**
 * The receivers: sessions, subjects and consumer groups, filtered, sorted and paged by the server; and one of them with its queue
 * and what happened to it.
 */

import {find, get, post} from "./api.js";
import {CAUSES, WORDS as CONDITIONS, causesInList, causesOf, standing} from "./conditions.js";
import {action, may} from "./dialogs.js";
import {coded, data, described, facts, filtered, filters, h, missing, result, pageSize, pager, parts, select, swap, table, topicLink} from "./elements.js";
import {ago, bytes, count, figure, span, things, time} from "./format.js";
import {hrefOfGroup} from "./groups.js";
import {ReceiverWorks, messageToSkip} from "./receiver_works.js";
import {sessionOf, subjectOf} from "./resource.js";
import {ratesBy, sparkline, withRates} from "./sparkline.js";

const PAGE = 100;
const NONE = "No receivers. A client that logs in with a session name stands here, also while it is away; so does each consumer group, and each subject with messages.";
const WORDS = {
    opened: "its client logged in", expired: "its token expired", refused: "a login of its name was refused", lost: "its client went away", back: "its client came back", failed: "its client rejected a message",
    held: "put on hold", released: "released", killed: "an operator ended it",
    skipped: "an operator skipped a message", drained: "an operator drained the queue", cleared: "an operator cleared the queue", overflow: "its queue was full, and turned messages away", died: "ended, with messages", closed: "ended",
};
/** What became of messages that a full queue turned away, by its policy. */
const POLICIES = {deadMessage: "they became dead letters", dropOldest: "they, or older ones, were dropped", disconnect: "the session ended"};
/** What became of a message that its client rejected. */
const OUTCOMES = {letter: "it became a dead letter", held: "it is held", waits: "it waits for a retry"};
const SHOWN = 20;
/** The operations of what happened whose reason only the audit has. */
const AUDITED = {released: "activate", skipped: "skip", drained: "drain", cleared: "clear"};
/** How far the clocks of an event and of its entry in the audit may be apart. */
const AUDITED_MS = 3000;
/** How many messages of a queue are shown: at first, and with each wish for more. */
const SIZES = [20, 100, 1000];
/**
 * The columns: heading, what stands below it, and on which wish they are shown; without one they always are. A list is sorted by those
 * with `sort`.
 */
const COLUMNS = [
    [{text: "Receiver", sort: "name", class: "name"}, (each) => h("span", {}, h("a", {href: hrefOf(each)}, parts(each.name, "/")), each.kind === "session" ? null : h("span", {class: "hint"}, ` ${each.kind}, ${things(each.members, "session")}`))],
    [{text: "State", sort: "trouble"}, standing],
    ["State in the API", ({state, held}) => h("code", {}, state, held ? ", held" : ""), "api"],
    [{text: "Waiting", class: "number", sort: "waiting"}, (each) => count(each.waiting)],
    [{text: "Size", class: "number", sort: "waitingBytes"}, (each) => each.waitingBytes === null ? "" : bytes(each.waitingBytes), "size"],
    [{text: "Oldest", class: "id", sort: "oldest"}, (each) => each.oldest === null ? "" : `${span(Date.now() - each.oldest)} ago`],
    [{text: "Why", class: "cause"}, causesInList],
    ["Address", (each) => h("span", {}, h("span", {class: "id"}, each.transport === "none" ? NO_TRANSPORT : each.transport), each.address ? [", ", h("wbr"), each.address.includes(":") ? parts(each.address, ":") : h("span", {class: "id"}, each.address)] : null), "client"],
    ["Client", (each) => each.client ? h("span", {class: "data program"}, each.client) : "", "client"],
];
/** What the operator may wish to see as well, by what the address says. */
const WISHES = [["", "usual"], ["client", "with connections"], ["api", "with the API's states"], ["all", "all"]];
const NO_TRANSPORT = "no transport";
const TRANSPORTS = [["", "any"], ["websocket", "websocket"], ["long-polling", "long-polling"], ["callback-polling", "callback-polling"], ["none", "none at the moment"]];
const FIELDS = [["contains", "Name", "search"], ["address", "Address"], ["client", "Client"]];
/** Filters that are about the client of a receiver. */
const CLIENTS = ["transport", "address", "client"];
const RECEIVERS_CHANGE = ["held", "released", "died"];
const SORTS = [["trouble", "Trouble"], ["name", "Name"], ["waiting", "Waiting messages"], ["waitingBytes", "Their size"], ["oldest", "Oldest message"]];

/** How the list is sorted unless the address says otherwise. */
const USUAL = "trouble";
const DESCENDING = ["trouble", "waiting", "waitingBytes"];

export function receivers({query, go, me, again, changed}) {
    const asked = Object.fromEntries(query);
    const sort = asked.sort ?? USUAL;
    const form = filters(FIELDS, asked, go,
        select("kind", "Kind", [["", "any"], ["session", "sessions"], ["subject", "subjects"], ["group", "groups"]], asked.kind ?? "", go),
        select("condition", "State", [["", "any"], ...CONDITIONS.map((each) => [each, each])], asked.condition ?? (asked.held === "true" ? "on hold" : ""), (changes) => go({...changes, held: "", state: ""})),
        select("transport", "Transport", TRANSPORTS, asked.transport ?? "", go),
        select("columns", "Columns", WISHES, asked.columns ?? "", go),
        select("sort", "Sorted by", SORTS, sort, (changes) => go({...changes, sort: changes.sort === USUAL ? "" : changes.sort})));
    const {after: _, sort: __, columns: wish = "", ...matching} = asked;
    // Who asks for certain clients sees which they are, and who sorts by size sees that.
    const wishes = wish === "all" ? ["client", "api", "size"] : [wish, CLIENTS.some((each) => asked[each]) ? "client" : "", sort === "waitingBytes" ? "size" : ""];
    const columns = COLUMNS.filter(([, , wished]) => wished === undefined || wishes.includes(wished));
    const list = h("div", {class: `stack ${wishes.includes("client") ? "dense" : ""}`});
    const empty = Object.keys(matching).length ? "No receiver matches." : NONE;
    const works = new ReceiverWorks(me.role, matching, again);
    const element = h("div", {class: "stack"}, h("h1", {}, "Receivers"), form,
        filtered([...[["contains", "name"], ["address", "address"], ["client", "client"], ["kind", "kind"], ["condition", "state"], ["transport", "transport"]].map(([name, text]) => [text, asked[name]]), ["most urgent trouble", CAUSES[asked.cause] ?? asked.cause]], "#/receivers"), works.element, list);

    async function refresh() {
        const rates = {...await ratesBy("receiver"), ...await ratesBy("group")};
        const told = await get("/receivers", {
            contains: asked.contains, address: asked.address, client: asked.client, transport: asked.transport,
            kind: asked.kind, condition: asked.condition, cause: asked.cause, state: asked.state, held: asked.held, sort, after: asked.after, count: pageSize(PAGE),
        });
        // With one server its name would be the same in each row.
        const hasNodes = "unreached" in told;
        const sorted = columns.map(([each]) => each.sort ? {...each, href: changed({sort: each.sort === USUAL ? "" : each.sort, after: ""}), order: each.sort === sort && (DESCENDING.includes(sort) ? "descending" : "ascending")} : each);
        const [headings, rows] = hasNodes ? [[...sorted, "Node"], told.receivers.map((each) => [...row(each, columns), h("span", {class: "id"}, each.node)])] : [sorted, told.receivers.map((each) => row(each, columns))];
        swap(list,
            missing(told, "receivers are missing here"),
            told.unknownSince && me.everywhere === null ? h("p", {class: "trouble"}, `The store cannot be used since ${time(told.unknownSince)}: this is what the server has in memory. What only the store knows is unknown.`) : "",
            table("Receivers", ...works.boxed(...withRates(headings, rows, told.receivers.map((each) => each.name), rates), told.receivers, !asked.after && !told.next), told.unknownSince ? `Unknown since ${time(told.unknownSince)}.` : empty), pager(asked, told.next, go));
    }

    return {element, refresh, everyMs: 5000, hears: RECEIVERS_CHANGE};
}

function row(each, columns) {
    return columns.map(([, cell]) => cell(each));
}

/** A text with a code. */
function dotted(text) {
    return text && coded(text);
}

/** The view of a receiver. A group, `/jobs/* workers`, has one of its own. */
function hrefOf({kind, name}) {
    const end = name.lastIndexOf(" ");
    return kind === "group" ? hrefOfGroup(name.slice(0, end), name.slice(end + 1)) : `#/receivers/${name.split("/").map(encodeURIComponent).join("/")}`;
}

/** What can be done to a receiver: the operation, the role it needs, to which receivers, what it does in short, and to how many messages. */
const ACTIONS = [
    ["activate", "Release", "operate", (each) => !each.active, "delivers again",
        (each) => `Delivers to ${each.name} again${isHeldMessageThere(each) ? ", the held message first" : ""}. ${waiting(each)}${each.transport === null ? " Its client is not connected: it gets them when it comes back." : ""}`],
    ["hold", "Hold", "operate", (each) => each.active && each.reliable, "messages wait until you release it",
        (each) => `Messages queue up for ${each.name} until you release it. ${waiting(each)}`],
    ["retry", "Retry now", "operate", (each) => each.retry !== null, "ends the pause after the failure",
        (each) => `Ends the pause after the failure of ${each.name}: sends its queue now. ${waiting(each)}`],
    ["skip", "Skip one", "operate", (each) => each.waiting > 0, "its first message becomes a dead letter",
        (each) => `Turns ${isHeldMessageThere(each) ? "the held message" : "the first message"} into a dead letter. ${waiting(each)}${each.active ? "" : " The receiver stays on hold: release it afterwards."}`],
    ["drain", "Drain", "operate", (each) => each.waiting > 0, "the whole queue becomes dead letters",
        (each) => `Turns the whole queue into dead letters: ${things(each.waiting, "message")}. A redrive of them needs the same room in this queue again.${each.conditions.includes("away") ? " Its client is away: if you start it instead, it takes what waits." : ""}`],
    ["ping", "Ping", "operate", (each) => each.state === "ALIVE", "asks its client for an answer", (each) => `Sends a ping to the client of ${each.name}.`],
    ["clear", "Clear", "destroy", (each) => each.waiting > 0, "drops the whole queue, without dead letters",
        (each) => `Drops the whole queue without dead letters: ${things(each.waiting, "message")}.`],
    ["kill", "End", "destroy", () => true, "ends the session; its queue becomes dead letters",
        (each) => `Ends the session ${each.name}. Its queue becomes dead letters: ${things(each.waiting, "message")}.`],
];

/** Whether the message that put the receiver on hold is still in its queue: an operator may have skipped it. */
function isHeldMessageThere({holdback}) {
    return holdback?.waits === true;
}

function waiting(session) {
    return `${things(session.waiting, "message")} wait${session.waiting === 1 ? "s" : ""}.`;
}

const RESULTS = {
    letters: (number) => number === 1 ? "1 message became a dead letter." : `${count(number)} messages became dead letters.`,
    cleared: (number) => `${things(number, "message")} dropped.`,
    retried: (is) => is ? "Sent again." : "Nothing was waiting for a retry.",
    pingMs: (ms) => `Round trip: ${ms} ms.`,
    killed: () => "The session has ended.",
};
/** What is said after an operation without a result of its own. */
const DONE = {activate: "Released.", hold: "On hold."};

/** A subject, `client/joe`: its sessions, and the queue of what is addressed to it. */
function subject({words: [name], query, go}) {
    const most = shown(query);
    const about = subjectOf(name);
    const head = h("div", {class: "stack"});
    const queue = h("section", {class: "stack"});
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/receivers?kind=subject"}, "All subjects")), h("h1", {}, name), head, queue);

    async function refresh() {
        const [told, kept] = await Promise.all([find(about), find(about.below("messages"), {count: most})]);
        const messages = kept ?? {queued: 0, messages: []};
        swap(head, ...told === null ? [h("p", {class: "hint"}, "It has no session and no queued messages.")] : [...causesOf(told), h("section", {class: "card"}, facts([
            ["Sessions", told.sessions.length ? told.sessions.slice(0, SHOWN).map((each) => [h("a", {href: hrefOf({name: each})}, each), " "]).flat() : "none"],
            ["Logins", told.blocked ? "refused: the subject is blocked" : "accepted"],
            ["Waiting", `${things(messages.queued, "message")}, of at most ${count(told.maxEntries)}`],
        ]))]);
        swap(queue, h("h2", {}, `Queue: ${things(messages.queued, "message")}`),
            ...queued(messages.messages, messages.queued, most, go));
    }

    return {element, refresh, everyMs: 5000};
}

export function receiver(asked) {
    return asked.words[0].split("/").length === 2 ? subject(asked) : session(asked);
}

function session({words: [name], query, go, me, again}) {
    const most = shown(query);
    const resource = sessionOf(name);
    const why = h("div", {class: "stack"});
    const head = h("div", {class: "stack"});
    const actions = h("div", {class: "actions"});
    const endings = h("section", {class: "stack endings", "aria-label": "What cannot be undone"});
    const output = h("p", {class: "outcome"});
    const queue = h("section", {class: "stack"});
    const past = h("section", {class: "stack"});
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/receivers"}, "All receivers")), h("h1", {}, name), why, actions, result(output), head, queue, past, endings);
    let known = "";

    async function refresh() {
        const [told, happened] = await Promise.all([find(resource), find(resource.below("timeline")).then((each) => each && named(each))]);
        const failedAt = happened?.events.find(({what}) => what === "failed")?.at;
        if (happened) {
            swap(past, ...timeline(happened));
        }
        if (!told) {
            why.replaceChildren();
            swap(head, h("p", {class: "hint"}, "There is no such session, or it has ended. ",
                h("a", {href: `#/dead-letters?receiver=${encodeURIComponent(name)}`}, "Its dead letters")));
            actions.replaceChildren();
            endings.replaceChildren();
            known = ""; // it may come back
            queue.replaceChildren();
            return;
        }
        const [rates, messages, letters] = await Promise.all([ratesBy("receiver"), get(resource.below("messages"), {count: most}), get("/dead-letters/count", {receiver: name}).then((each) => each.count, () => null)]);
        told.waiting = messages.waiting; // one view has one number of them
        swap(why, ...causesOf(told));
        swap(head, about(told, rates?.[name], failedAt, letters));
        const possible = ACTIONS.filter(([, , role, fits]) => may(told.may, role) && fits(told));
        if (known !== possible.map(([verb]) => verb).join()) { // a button under the pointer stays where it is
            known = possible.map(([verb]) => verb).join();
            const [harmless, final] = [false, true].map((isFinal) => possible.filter(([, , role]) => (role === "destroy") === isFinal).map((each) => described(button(each), each[4])));
            swap(actions, ...harmless);
            swap(endings, ...final.length ? [h("h2", {}, "What cannot be undone"), h("div", {class: "actions"}, final)] : []);
        }
        swap(queue, h("h2", {}, `Queue: ${things(messages.waiting, "message")}`),
            ...queued(messages.messages, messages.waiting, most, go, told.holdback?.id));
    }

    /** Adds who did what to the receiver, and why: the audit has that, for those who may read it. */
    async function named(happened) {
        const verbs = me.everywhere === null ? [] : [...new Set(happened.events.map(({what}) => AUDITED[what]).filter(Boolean))];
        const entries = new Map(await Promise.all(verbs.map(async (verb) => [verb, await get("/audit", {about: name, what: verb, outcome: "done"}).then(({entries: each}) => each, () => [])])));
        for (const event of happened.events) {
            const entry = entries.get(AUDITED[event.what])?.find(({at}) => Math.abs(at - event.at) < AUDITED_MS);
            Object.assign(event, entry ? {who: entry.who, reason: entry.reason} : {});
        }
        return happened;
    }

    function button([verb, text, role, , , effect]) {
        let message = "";
        return action({
            name: text,
            question: async () => {
                const told = await get(resource);
                message = verb === "skip" ? await messageToSkip(resource, told.holdback) : "";
                return {title: `${text}: ${name}`, effect: effect(told), button: text, isFinal: role === "destroy"};
            },
            work: async (reason) => {
                const told = await post(resource.below(verb), {...reason ? {reason} : {}, ...message ? {message} : {}});
                if (message && told.letters === 0) {
                    return "That message is no longer in the queue: nothing was skipped.";
                }
                const [key] = Object.keys(RESULTS).filter((each) => each in told && !(each === "pingMs" && verb !== "ping"));
                const skipped = verb === "skip" && !told.active ? " The receiver is still on hold." : "";
                return key === undefined ? DONE[verb] : RESULTS[key](told[key]) + skipped;
            },
            output,
            again,
            kind: role === "destroy" ? "danger" : "",
        });
    }

    return {element, refresh, everyMs: 3000, hears: RECEIVERS_CHANGE};
}

/** How many messages of the queue the address asks for. */
function shown(query) {
    return SIZES.find((size) => String(size) === query.get("count")) ?? SIZES[0];
}

/** The first messages of a queue, and the button that shows more of them. */
function queued(messages, number, most, go, held = "") {
    const next = SIZES.find((size) => size > most);
    return [
        h("p", {class: "hint"}, `${number > most ? `The first ${count(most)}. ` : ""}Viewing changes nothing.`),
        table("Queue", ["Message", "Channel", "Data"], messages.map((each) => message(each, held)), "Nothing waits."),
        number > most && next ? h("p", {class: "actions"}, h("button", {type: "button", onclick: () => go({count: next})}, `Show the first ${count(next)}`)) : "",
    ];
}

function about(session, rates, failedAt, letters) {
    const {holdback} = session;
    return h("section", {class: "card"}, facts([
        ["State", standing(session)],
        ["Held message", holdback?.id && [h("a", {href: `#/message/${encodeURIComponent(holdback.id)}`}, holdback.id), isHeldMessageThere(session) ? "" : ", no longer in the queue"]],
        ["Last failure", session.lastFailure && h("span", {}, dotted(`${session.lastFailure.code}: ${session.lastFailure.reason}`), failedAt ? h("span", {class: "hint"}, ` at ${ago(failedAt)}`) : "")],
        ["Open at the client", session.qos.maxOpen ? `${count(session.inFlight)}, of at most ${count(session.qos.maxOpen)}` : count(session.inFlight)],
        ["Waiting", `${things(session.waiting, "message")}, ${bytes(session.waitingBytes)}, of at most ${count(session.maxEntries)}`],
        ["Oldest", session.oldest ? ["has waited for ", span(Date.now() - session.oldest), ", since ", h("span", {class: "id"}, time(session.oldest))] : ""],
        [session.transport === null ? "Sent before" : "At its client", session.inFlight ? `${things(session.inFlight, "message")}, sent and not acknowledged` : ""],
        ["Acknowledged", pace(session.pace, session.loggedIn)],
        ["Last ten minutes", rates && sparkline(rates)],
        ["Transport", session.transport ?? "none at the moment: its client is away, or between two requests"],
        ["Address", session.address && (session.transport ? session.address : `${session.address}, the last one`)],
        ["Client", session.client],
        ["Node", session.node],
        ["Ends", session.ends && `in ${span(session.ends.at - Date.now())}: ${session.ends.why}`],
        ["At this server since", ago(session.loggedIn)],
        ["Subscriptions", session.subscriptions.length ? session.subscriptions.map((each) => subscription(each, session.subscriptionOptions[each])) : session.ptp ? "none: it takes what is addressed to its subject" : "none"],
        ["Dead letters", h("a", {href: `#/dead-letters?receiver=${encodeURIComponent(session.name)}`}, `${letters === null ? "" : `${count(letters)} `}of this receiver`)],
    ]));
}

/** How fast the receiver has been lately. */
function pace(told, since) {
    if (!told?.last) {
        return told ? `none in the last ${span(told.withinMs)}` : "";
    }
    const withinMs = Math.max(Math.min(told.withinMs, Date.now() - since), 1000);
    return `${figure(told.count * 60_000 / withinMs)} a minute (${things(told.count, "message")} in ${span(withinMs)}), the last one ${ago(told.last)}`;
}

/** A subscription with what it asks for beyond all messages of its channel: a filter, a group, a history. */
function subscription(channel, choices = []) {
    return h("div", {}, topicLink(channel), choices.map((each) => [" ", h("code", {}, JSON.stringify(each))]));
}

/** What happened to a receiver: events, the newest first. */
function timeline({since, events, dropped, ...told}) {
    const rows = events.map(({what, since: first, at, count: times, code, reason, who, id, outcome, policy, transport, from, ...more}) => [
        time(first) === time(at) ? time(at) : `${time(first)} to ${time(at)}`,
        WORDS[what] ?? what,
        times > 1 ? count(times) : "",
        dotted([[code, reason].filter(Boolean).join(": "), outcome && (OUTCOMES[outcome] ?? outcome), policy && (POLICIES[policy] ?? policy), who && `by ${who}`, transport && `by ${transport}`, from && `from ${from}`, ...Object.entries(more).filter(([, value]) => value !== "").map(([name, value]) => `${name} ${value}`)].filter(Boolean).join(", ")),
        /^[0-9]+$/.test(id ?? "") ? h("a", {href: `#/message/${id}`}, id) : id ?? "",
    ]);
    return [
        h("h2", {}, "What happened"),
        missing(told, "what they remember of it is missing here"),
        table("What happened", [{text: "When", class: "id"}, "What", {text: "Times", class: "number"}, "Why", "Message"], rows,
            since === null ? "Nothing is recorded." : "No failure, hold, absence or full queue since the session came to this server."),
        dropped ? h("p", {class: "hint"}, `${things(dropped, "earlier event")} no longer recorded.`) : "",
    ];
}

function message(each, held) {
    const id = each.ext?.update?.id ?? each.id ?? "";
    return [h("span", {}, /^[0-9]+$/.test(id) ? h("a", {href: `#/message/${id}`}, id) : id, held && id === held ? h("span", {class: "mark bad"}, " on hold") : null), each.channel, data(each.data)];
}

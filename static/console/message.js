/**
 * Where a message is: for each receiver, whether it waits, was acknowledged or became a dead letter. Messages are found by id, by
 * idempotency key, or by a text in them.
 */

import {find, get} from "./api.js";
import {may} from "./dialogs.js";
import {data, described, facts, h, missing, pager, parts, receiverLink, result, sections, swap, table, topicLink} from "./elements.js";
import {ago, count, senderText, sentence, things, time} from "./format.js";
import {letterOf, messageOf, scheduledOf} from "./resource.js";
import {cancelling, receiversText, scheduleFacts} from "./scheduled.js";

const IDS = /^[0-9]{12,}$|^[0-9]+-[0-9]+$/;
const LETTERS = 20;
/** A field of the data and its exact value: order=100. Other texts are searched as they are. */
const FIELD = /^[\w.-]+=[^=]*$/;
const HEADINGS = ["Message", "Where", "Published", "Channel", "Sender", "Data"];
const PLACES = 20;

/** What is an id leads to the message; any other text is searched for. */
function form(text) {
    const hint = "Id of a message or a dead letter, idempotency key, field such as order=100, or a text in its data";
    const field = h("input", {type: "search", value: text, required: true, "aria-label": hint, placeholder: hint});
    return h("form", {class: "filters", role: "search", onsubmit: (event) => {
        event.preventDefault();
        const asked = field.value.trim();
        location.hash = IDS.test(asked) ? `#/message/${encodeURIComponent(asked)}` : `#/message?${new URLSearchParams({contains: asked})}`;
    }}, field, h("button", {}, "Find"));
}

/** The view without an id: where to enter one, and what has a text in it. */
export function findMessage({query, go}) {
    const asked = Object.fromEntries(query);
    const wanted = FIELD.test(asked.contains ?? "") ? {field: asked.contains} : {contains: asked.contains};
    const found = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Where is a message?"), form(asked.contains ?? ""), found,
        h("p", {class: "hint"}, "The id is in the reply to a stored publish (ext.publish.id), in the queue of a receiver, and in each dead letter. order=100 finds exactly this value of the field order; any other text is searched in the message as JSON without spaces."));

    async function refresh() {
        if (!asked.contains) {
            return;
        }
        const [keyed, open, dead] = await Promise.all([
            get("/messages", {key: asked.contains, after: asked.keyAfter}),
            get("/messages", {...wanted, after: asked.after}),
            get("/dead-letters", {...wanted, count: LETTERS, newestFirst: true}),
        ]);
        swap(found,
            h("h2", {}, "With this idempotency key"),
            table("Messages with this idempotency key", HEADINGS, keyed.messages.map(row),
                keyed.next ? "None so far; the search continues further back." : "No message with this key is recorded. Keys are kept as long as the facts (storage.facts_max_entries)."),
            keyed.next ? h("p", {class: "actions"}, h("button", {type: "button", onclick: () => go({keyAfter: keyed.next})}, "Search further back")) : "",
            h("h2", {}, "Stored messages"),
            table("Stored messages", HEADINGS, open.messages.map(row),
            open.next ? "None so far; the search continues with the next page." : "None that is open has this. Search for a field, such as order=17, or for a part of its JSON without spaces. Messages that all receivers have accepted leave the store soon."),
            pager(asked, open.next, go),
            ...open.queued.length ? [
                h("h2", {}, "Waiting for a subject or a group"),
                table("Messages that wait for a subject or a group", HEADINGS, open.queued.map(row)),
                open.queuedPartial ? h("p", {class: "hint"}, "There may be more than these.") : "",
            ] : [],
            h("h2", {}, "Dead letters"),
            table("Dead letters", ["Dead letter", "Message", "Channel", "Receiver", "Data"], dead.letters.map((each) => [
                h("a", {href: `#/dead-letters/${each.id}`}, each.id), h("a", {href: `#/message/${each.id}`}, each.message),
                parts(each.channel, "/"), each.receiver.replace(/^\/node\/[^/]+\//, ""), data(each.data)]),
            dead.next ? "None among the oldest dead letters that were searched; the link below searches all." : "No dead letter has this."),
            h("p", {class: "hint"}, h("a", {href: `#/dead-letters?${new URLSearchParams(wanted)}`}, `All dead letters with this ${wanted.field ? "field" : "text"}`)));
        for (const cell of [...found.querySelectorAll("[data-message]")].slice(0, PLACES)) { // one after the other: the list is there already
            cell.replaceChildren(...await place(cell.dataset.message));
        }
    }

    return {element, refresh};
}

function row(each) {
    const isGone = each.qos === null;
    return [h("a", {href: `#/message/${each.message}`}, each.message), h("span", {"data-message": each.message}), ago(each.publishedAt), parts(each.channel, "/"),
        isGone ? "" : senderText(each), isGone ? h("span", {class: "hint"}, "no longer stored") : data(each.data)];
}

/** Where a message is: the state at each of the first receivers, the number of others. */
async function place(id) {
    const told = await get(messageOf(id)).catch(() => null);
    const receivers = told?.receivers ?? [];
    const all = Object.values(told?.states ?? {}).reduce((sum, number) => sum + number, 0);
    return [...receivers.slice(0, 2).map((each, index) => h("span", {}, index ? ", " : "", state(each), ": ", receiverLink(each.receiver))), all > 2 ? ` and ${count(all - 2)} more` : ""];
}

const MOST_REDRIVES = 10;

/** The message that this one was before all its redrives, as far as that is recorded; null if it was none. */
async function original(told) {
    let found = null;
    for (let redrives = 0, at = told; at?.redriveOf && redrives < MOST_REDRIVES; redrives += 1) {
        const end = await find(letterOf(at.redriveOf).below("end", {isNamed: false}));
        at = end?.message ? await find(messageOf(end.message)) : null;
        found = at ?? found;
    }
    return found;
}

export function message({words: [id], query, me, go, again}) {
    const wanted = query.get("receiver") ?? "";
    const body = h("div", {class: "stack"});
    const summary = h("span", {});
    const field = h("input", {type: "search", value: wanted, "aria-label": "Receiver", placeholder: "Part of a receiver's name"});
    const chooser = h("form", {class: "filters", hidden: true, onsubmit: (event) => {
        event.preventDefault();
        go({receiver: field.value.trim()});
    }}, summary, field, h("button", {}, "Show"));
    const actions = h("div", {class: "actions"});
    const output = h("p", {class: "outcome"});
    const element = h("div", {class: "stack"}, h("h1", {}, `Message ${id}`), form(id), actions, result(output), body, chooser);

    let first;
    let waiting = null;

    /** What is scheduled can be cancelled. */
    async function offerCancel({schedule}) {
        const isOpen = schedule !== null && !schedule.publishedAs && !schedule.cancelled;
        waiting = isOpen ? await find(scheduledOf(id)) : null;
        const isOffered = waiting !== null && may(waiting.may, "destroy");
        if (isOffered !== actions.hasChildNodes()) {
            swap(actions, ...isOffered ? [described(cancelling(waiting.may, () => [waiting], output, again), "it is not published")] : []);
        }
    }

    /** Of many receivers: how many there are in each state, and a field to choose some. */
    function summarise({states, receivers}) {
        const all = Object.values(states).reduce((sum, number) => sum + number, 0);
        chooser.hidden = all <= receivers.length && !wanted;
        summary.textContent = `${count(receivers.length)} of ${things(all, "receiver")} are shown: ${
            Object.entries(states).map(([state, number]) => `${count(number)} ${state}`).join(", ")} in all.`;
    }

    async function refresh() {
        let told;
        try {
            told = await get(messageOf(id), {receiver: wanted});
        } catch (error) {
            if (error.status !== 404) {
                throw error;
            }
            swap(body, h("p", {}, sentence(error.message)), /^[0-9]+-[0-9]+$/.test(id) ? h("p", {class: "hint"}, gone(me, `contains=${id}`)) : "");
            return;
        }
        await offerCancel(told);
        summarise(told);
        if (told.redriveOf && (first === undefined || told.qos === null)) { // the original may leave the store meanwhile
            first = await original(told) ?? first;
        }
        const from = told.qos === null && first ? {...first, to: told.to ?? first.to} : told;
        const rows = [
            ...told.receivers.map((each) => [receiverLink(each.receiver), state(each), each.at === null ? "" : time(each.at), more(each, me)]),
            ...told.notFor.map((each) => [receiverLink(each.receiver), h("span", {class: "hint"}, "not for it"), "", each.why]),
        ];
        swap(body,
            h("section", {class: "card"}, facts([
                ["Channel", told.channel || first?.channel ? topicLink(told.channel || first.channel) : "no longer recorded"],
                ...scheduleFacts(told, waiting, me),
                told.schedule ? [] : [told.firstPublishedAt ? "Redriven" : "Published", told.recorded ? ago(told.publishedAt) : "no longer recorded"],
                ["Idempotency key", told.key || first?.key],
                ["First published", told.firstPublishedAt && ago(told.firstPublishedAt)],
                ["Sender", from.data === null && from.sender === null ? "no longer recorded" : senderText(from)],
                ["To", from.to],
                ["Original", first && h("a", {href: `#/message/${encodeURIComponent(first.message)}`}, `message ${first.message}`)],
                ["Redrive of", told.redriveOf && h("a", {href: `#/dead-letters/${told.redriveOf}`}, `dead letter ${told.redriveOf}`)],
                ["Redriven as", told.redrivenAs.map((each) => [h("a", {href: `#/message/${each}`}, each), " "]).flat().length
                    ? h("span", {}, told.redrivenAs.map((each) => [h("a", {href: `#/message/${each}`}, each), " "]).flat()) : ""],
            ])),
            told.schedule ? h("p", {class: "hint"}, receiversText(told.schedule)) : table("Receivers", ["Receiver", "State", "At", "More"], rows, wanted ? "None with this text in its name." : "It had no receiver."),
            ...from.qos === null ? [h("p", {class: "hint"}, "The store no longer has its data.")] : [
                from === told ? "" : h("p", {class: "hint"}, "The store no longer has its data; this is that of the original message."),
                ...sections([["Data", from.data], ["Properties", from.qos.clientProperties], ["Options of the publish", withoutProperties(from.qos)], ["Other ext", from.ext]])],
            missing(told, "what waits there is missing"),
            told.partial ? h("p", {class: "trouble"}, "There are more facts than one request can read: later ones may be missing.") : "");
    }

    return {element, refresh, everyMs: 5000};
}

/** "discarded by mary at …: unpaid", with a link to the job or to the audit. */
export function discarded({letter, at, who, reason, job}, me) {
    const told = `discarded by ${who || "an operator"} at ${time(at)}${reason ? `: ${reason}` : ""}`;
    return [told, ", ", job ? h("a", {href: `#/jobs/${job}`}, `Job ${job}`) : me.everywhere === null ? null : h("a", {href: `#/audit?contains=${letter}`}, "in the audit")];
}

/** A link to the audit, which has who discarded or redrove dead letters, and why. Operators of some channels do not see it. */
function gone(me, search) {
    return me.everywhere === null ? null : h("a", {href: `#/audit?${search}`}, "Who did what, in the audit");
}

function withoutProperties({clientProperties, ...others}) {
    return others;
}

function state(each) {
    const kind = {acknowledged: "good", "dead letter": "bad"}[each.state] ?? "";
    return h("span", {class: `mark ${each.held ? "bad" : kind}`}, each.held ? "on hold" : each.state);
}

function more(each, me) {
    const {letter, redrivenAs, filters = []} = each;
    const isGone = each.state === "dead letter" && !letter && !redrivenAs && !each.discarded;
    const told = [
        each.code && parts(each.code, "."), each.reason, each.why,
        each.attempts && things(each.attempts, "attempt"),
        filters.length && [filters.length > 1 ? "filters " : "filter ", filters.map((text, index) => [index ? " and " : "", h("code", {}, text)])],
        letter && h("a", {href: `#/dead-letters/${letter}`}, `dead letter ${letter}`),
        redrivenAs && h("a", {href: `#/message/${redrivenAs}`}, `redriven as ${redrivenAs}`),
        each.discarded && discarded(each.discarded, me),
        isGone && ["no longer kept. ", gone(me, `what=discard&since=${each.at}`)],
    ].filter(Boolean);
    return told.length ? h("span", {}, told.map((part, index) => [index ? ", " : "", part])) : "";
}

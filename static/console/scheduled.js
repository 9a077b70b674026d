/**
 * Scheduled messages: a list of those that are to be published later, what the page of one says about that, and their cancelling.
 */

import {get, post} from "./api.js";
import {action, may} from "./dialogs.js";
import {coded, described, filtered, filters, h, pageSize, pager, result, swap, table, topicLink} from "./elements.js";
import {ago, bytes, count, senderText, span, things, time} from "./format.js";
import {Selection} from "./selection.js";

const PAGE = 50;
/** Ids that one request cancels, and messages that one answer has, at most. */
const AT_ONCE = 1000;
const NAMED = 3;
const COLUMNS = [{text: "Message", class: "id"}, {text: "Due", class: "id"}, {text: "Channel", class: "name"}, "Sender", {text: "Size", class: "number"}, "Refused because"];

export function scheduled({query, go, me, again}) {
    const asked = Object.fromEntries(query);
    const wanted = {channel: asked.channel};
    const total = h("p", {class: "hint"});
    const output = h("p", {class: "outcome"});
    const list = h("div", {class: "stack"});
    const selection = new Selection("scheduled message", enable);
    const button = cancelling(me.role, () => selection.isAll ? all(wanted) : selection.rows, output, () => {
        selection.clear();
        return again();
    });
    const element = h("div", {class: "stack"}, h("h1", {}, "Scheduled messages"), filters([["channel", "Channel or pattern", "search"]], asked, go),
        filtered([["channel", asked.channel]], "#/scheduled"), total,
        button ? h("div", {class: "actions bulk"}, described(button, "what is selected is not published"), selection.element) : null, result(output), list);
    enable();

    function enable() {
        if (button) {
            button.disabled = selection.isEmpty;
        }
    }

    async function refresh() {
        const told = await get("/scheduled-messages", {...wanted, after: asked.after, count: pageSize(PAGE)});
        const isWhole = !asked.after && !told.next;
        total.textContent = told.total === null ? "" : `${things(told.total, "scheduled message")} in all.`; // null: only some channels are the operator's
        selection.total = isWhole ? told.messages.length : asked.channel ? null : told.total;
        const {head, boxes} = selection.show(told.messages.map((each) => [each.id, each]));
        const boxed = (cells, box) => button ? [box, ...cells] : cells;
        enable();
        swap(list,
            table("Scheduled messages", boxed(COLUMNS, {text: "Select", element: head, class: "select"}), told.messages.map((each, index) => boxed(row(each), boxes[index])),
                told.next ? "No match so far; the search continues on the next page." : asked.channel ? "No scheduled message matches." : "No scheduled messages. A message that is published with a time stands here until then."),
            pager(asked, told.next, go));
    }

    return {element, refresh, everyMs: 10_000};
}

function row(each) {
    return [messageLink(each.id), due(each.deliverAt), topicLink(each.channel), senderText(each), bytes(each.bytes), refused(each)];
}

function messageLink(id) {
    return h("a", {href: `#/message/${id}`}, id);
}

/** 2026-11-22 04:31:07, in 3 min */
function due(at) {
    return at > Date.now() ? `${time(at)}, in ${span(at - Date.now())}` : ago(at);
}

/** Why it was not published when it was due, and when the server tries it again. */
function refused({refusal, nextAttempt}) {
    return refusal && h("span", {}, coded(refusal), h("span", {class: "hint"}, ` The next try is at ${time(nextAttempt)}.`));
}

/** All that match, page after page. */
async function all(wanted) {
    const found = [];
    for (let after = ""; ;) {
        const told = await get("/scheduled-messages", {...wanted, after, count: AT_ONCE});
        found.push(...told.messages);
        after = told.next;
        if (!after) {
            return found;
        }
    }
}

/** The button that cancels what `chosen` returns, after a question that says what will not be published. */
export function cancelling(role, chosen, output, again) {
    let ids = [];
    return may(role, "destroy") && action({
        name: "Cancel",
        question: async () => {
            const messages = await chosen();
            ids = messages.map(({id}) => id);
            if (ids.length === 0) {
                return "No scheduled message matches.";
            }
            const what = things(ids.length, "scheduled message");
            return {title: `Cancel ${what}`, effect: `${named(messages)} will not be published.`, button: `Cancel ${what}`, leave: ids.length === 1 ? "Keep it" : "Keep them", isFinal: true};
        },
        work: async (reason) => {
            let cancelled = 0;
            for (let start = 0; start < ids.length; start += AT_ONCE) {
                cancelled += (await post("/scheduled-messages/cancel", {ids: ids.slice(start, start + AT_ONCE), ...reason ? {reason} : {}})).cancelled;
            }
            const gone = ids.length - cancelled;
            return `${things(cancelled, "scheduled message")} cancelled.${gone ? ` ${count(gone)} had been published or cancelled before.` : ""}`;
        },
        output,
        again,
        kind: "danger",
    });
}

/** "The message to /reminders/oven, due 2026-12-24 20:00:00, in 3 d," or "3 messages to /reminders/oven and /reminders/tea, the first due …,". */
function named(messages) {
    const channels = [...new Set(messages.map(({channel}) => channel))];
    const to = channels.length > NAMED ? `${channels.slice(0, NAMED).join(", ")} and ${things(channels.length - NAMED, "other channel")}` : channels.join(", ");
    const first = due(Math.min(...messages.map(({deliverAt}) => deliverAt)));
    return messages.length === 1 ? `The message to ${to}, due ${first},` : `${things(messages.length, "message")} to ${to}, the first due ${first},`;
}

/** Facts of a message about its schedule; `waiting` is what the list has of it, null if it is not there. */
export function scheduleFacts({message, schedule, scheduledAs}, waiting, me) {
    if (schedule === null) {
        return [["Scheduled as", scheduledAs && messageLink(scheduledAs)]];
    }
    const {deliverAt, publishedAs, cancelled} = schedule;
    const audit = me.everywhere !== null && [", ", h("a", {href: `#/audit?contains=${message}`}, "in the audit")];
    return [
        ["Due", deliverAt === null ? "no longer recorded" : publishedAs || cancelled ? time(deliverAt) : due(deliverAt)],
        ["Published", publishedAs ? h("span", {}, "as ", messageLink(publishedAs)) : cancelled ? "never" : "not yet"],
        ["Cancelled", cancelled && h("span", {}, `by ${cancelled.who || "an operator"} at ${time(cancelled.at)}`, audit)],
        ["Refused because", waiting && refused(waiting)],
        ["Size", waiting && bytes(waiting.bytes)],
    ];
}

/** Where the receivers of a message are that has a schedule. */
export function receiversText({publishedAs, cancelled}) {
    return publishedAs ? ["Its receivers stand at ", messageLink(publishedAs), "."]
        : cancelled ? "It has no receivers: it was cancelled." : "Its receivers will be the subscribers and groups at the moment when it is published.";
}

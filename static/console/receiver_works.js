/**
 * What operators do with several receivers at once: release, skip and clear, each after a question that names them and the number
 * of their messages.
 */

import {get, post} from "./api.js";
import {action, may} from "./dialogs.js";
import {described, h, result} from "./elements.js";
import {count, things} from "./format.js";
import {sessionOf} from "./resource.js";
import {Selection} from "./selection.js";

const PAGE = 1000;
const AT_ONCE = 4;
const FEW = 10;
const NAMED = 3;

/** The operation, its name, the role that it needs, the receivers that it fits, what it does, what came of it, and what it does in short. */
const WORKS = [
    ["activate", "Release", "operate", (each) => each.held, (names, waiting) => `Delivers to ${names} again. ${waiting}`, "released", "delivers again"],
    ["skip", "Skip one", "operate", (each) => each.waiting > 0, (names, waiting) => `Turns the first message of ${names} into a dead letter. ${waiting}`, "skipped one message", "the first message becomes a dead letter"],
    ["clear", "Clear queues", "destroy", (each) => each.waiting > 0, (names, waiting) => `Drops the whole queues of ${names} without dead letters. ${waiting}`, "cleared", "drops the queues, without dead letters"],
];

export class ReceiverWorks {
    #filters;
    #buttons;
    #selection;
    #output = h("p", {class: "outcome"});

    /** `filters` are what the list is asked for; `again` shows it again. */
    constructor(role, filters, again) {
        this.#filters = filters;
        this.#selection = new Selection("receiver", () => this.#enable());
        const done = () => {
            this.#selection.clear();
            return again();
        };
        const offered = WORKS.filter(([, , needed]) => may(role, needed));
        this.#buttons = offered.map((each) => this.#button(each, done));
        const isOffered = this.#buttons.length > 0;
        const shown = this.#buttons.map((button, place) => described(button, offered[place].at(-1)));
        this.element = h("div", {class: "stack", hidden: !isOffered}, h("div", {class: "actions bulk"}, shown, this.#selection.element), result(this.#output));
        this.isOffered = isOffered;
        this.#enable();
    }

    /** The headings and rows of the table with a box for each session. */
    boxed(headings, rows, receivers, isWhole) {
        if (!this.isOffered) {
            return [headings, rows];
        }
        const sessions = receivers.filter((each) => each.kind === "session");
        this.#selection.total = isWhole ? sessions.length : null;
        const {head, boxes} = this.#selection.show(sessions.map((each) => [each.name, each]));
        this.#enable();
        const next = boxes.values();
        return [[{text: "Select", element: head, class: "select"}, ...headings], rows.map((row, at) => [receivers[at].kind === "session" ? next.next().value : "", ...row])];
    }

    #enable() {
        for (const button of this.#buttons) {
            button.disabled = this.#selection.isEmpty;
        }
    }

    /** The sessions that are chosen, as they are now, without those that have left the list; and how many were chosen. */
    async #chosen() {
        const {isAll, ids} = this.#selection;
        if (isAll) {
            const found = await this.#listed();
            return [found, found.length];
        }
        // A few are asked for by their names: the list may be very long.
        const lists = ids.length > FEW ? [await this.#listed()]
            : await Promise.all(ids.sort().map(async (id) => (await this.#listed({contains: id})).filter(({name}) => name === id)));
        return [lists.flat().filter(({name}) => ids.includes(name)), ids.length];
    }

    /** All sessions of the list, by name. */
    async #listed(more = {}) {
        const found = [];
        let after = "";
        do {
            const told = await get("/receivers", {...this.#filters, ...more, sort: "name", kind: "session", after, count: PAGE});
            found.push(...told.receivers);
            after = told.next;
        } while (after);
        return found;
    }

    /** For a skip, the message of each that the question is about. */
    async #messages(verb, receivers) {
        const found = new Map();
        if (verb === "skip") {
            await pooled(receivers, async (each) => {
                const about = sessionOf(each.name);
                const {holdback} = each.held ? await get(about) : {holdback: null};
                found.set(each.name, await messageToSkip(about, holdback));
            });
        }
        return found;
    }

    #button([verb, text, needed, fits, effect, done], again) {
        let fitting = [];
        let messagesOf = new Map();
        return action({
            name: text,
            question: async () => {
                const [chosen, number] = await this.#chosen();
                fitting = chosen.filter(fits);
                if (fitting.length === 0) {
                    return verb === "activate" ? "None of them is on hold." : "None of them has messages.";
                }
                messagesOf = await this.#messages(verb, fitting);
                const messages = fitting.reduce((sum, each) => sum + each.waiting, 0);
                const others = number - fitting.length;
                const left = others ? ` ${things(others, "other")} selected ${others === 1 ? "is" : "are"} left as ${others === 1 ? "it is" : "they are"}.` : "";
                return {title: text, effect: effect(named(fitting), `${things(messages, "message")} wait${messages === 1 ? "s" : ""}.`) + left,
                    button: `${text}: ${count(fitting.length)}`, isFinal: needed === "destroy"};
            },
            work: (reason) => each(fitting, async (receiver) => {
                const message = messagesOf.get(receiver.name);
                const told = await post(sessionOf(receiver.name).below(verb), {...reason ? {reason} : {}, ...message ? {message} : {}});
                if (message && told.letters === 0) {
                    throw new Error("that message is no longer in the queue");
                }
            }, done),
            output: this.#output,
            again,
            kind: needed === "destroy" ? "danger" : "",
        });
    }
}

/**
 * The id of the message that a skip is about: the one that is held if it waits, else the first of the queue. A request that names
 * it takes no other one when another operator was faster.
 */
export async function messageToSkip(session, holdback) {
    if (holdback?.waits) {
        return holdback.id;
    }
    const {messages: [first]} = await get(session.below("messages"), {count: 1});
    return first?.ext?.update?.id ?? "";
}

/** "5 receivers: client/a/1, client/b/1, client/c/1 and 2 more" */
function named(receivers) {
    const some = receivers.slice(0, NAMED).map(({name}) => name).join(", ");
    const more = receivers.length > NAMED ? ` and ${count(receivers.length - NAMED)} more` : "";
    return receivers.length === 1 ? some : `${things(receivers.length, "receiver")}: ${some}${more}`;
}

/** Does it to each, a few at a time, and says to how many it was done, and why not to others. */
async function each(receivers, ask, done) {
    const failed = [];
    await pooled(receivers, (next) => ask(next).catch((error) => failed.push(`${next.name}: ${error.message}`)));
    const ok = receivers.length - failed.length;
    return `${things(ok, "receiver")} ${done}.${failed.length ? ` ${things(failed.length, "receiver")} failed; ${failed[0]}` : ""}`;
}

/** Does the work for each, a few at a time. */
async function pooled(items, work) {
    const left = [...items];
    const worker = async () => {
        for (let next = left.shift(); next !== undefined; next = left.shift()) {
            await work(next);
        }
    };
    await Promise.all(Array.from({length: AT_ONCE}, worker));
}

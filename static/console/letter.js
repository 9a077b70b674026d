/**
 * One dead letter: why it was made, each attempt, its message, which may be edited and sent again, and what happened to it later.
 */

import {find, get, post} from "./api.js";
import {action, json, may} from "./dialogs.js";
import {described, facts, h, result, sections, swap, table, topicLink, parts} from "./elements.js";
import {ago, count, senderText, span, things, time} from "./format.js";
import {name, restored, works} from "./letter_works.js";
import {discarded} from "./message.js";
import {Resource, letterOf, messageOf} from "./resource.js";

const NAMED = 3;

/** Why a dead letter was made, and for whom. */
function reasons(letter) {
    return [
        ["Code", parts(letter.errorCode, ".")],
        ["Code as given", letter.errorCodeGiven],
        ["Reason", letter.reason],
        ["Receiver", h("a", {href: `#/receivers/${name(letter)}`}, name(letter))],
        ["Channel", topicLink(letter.channel)],
    ];
}

/** All that is known of it beside its data. */
function about(letter) {
    return facts([
        ["Dead letter since", ago(Number((letter.restoredFrom ?? letter.id).split("-")[0]))],
        ...reasons(letter).slice(0, 3),
        [letter.returns ? "Attempts since the redrive" : "Attempts", count(letter.attempts)],
        ["Came back", letter.returns && h("span", {}, `${things(letter.returns, "time")}, at last as the redrive of `, h("a", {href: `#/dead-letters/${letter.redriveOf}`}, letter.redriveOf))],
        ["Edited", letter.edited && h("span", {}, "by an operator; the original is ", h("a", {href: `#/dead-letters/${letter.redriveOf}`}, letter.redriveOf))],
        ["Restored", letter.restoredFrom && `it was discarded as ${letter.restoredFrom}, and restored`],
        ["Sent in its place", letter.editedAs && h("a", {href: `#/message/${letter.editedAs}`}, `the edited message ${letter.editedAs}`)],
        ...reasons(letter).slice(3),
        ["To", letter.to],
        ["Message", h("a", {href: `#/message/${letter.persistent ? encodeURIComponent(letter.message) : letter.id}`}, letter.message)],
        [letter.returns ? "Redriven" : "Published", ago(Number(letter.rcvTimestamp) / 1e6)],
        ["Sender", senderText(letter)],
        ["Persistent", letter.persistent ? "yes" : "no"],
    ]);
}

/** Each attempt with its time and its error, the oldest first, and the redrives between them. */
function attempts(letter) {
    const only = letter.attempts ? [{at: Number((letter.restoredFrom ?? letter.id).split("-")[0]), errorCode: letter.errorCode, reason: letter.reason}] : [];
    const known = letter.history ?? only;
    const failed = known.slice(known.findLastIndex((each) => each.redrivenAs) + 1).length;
    const rows = known.map((each) => each.redrivenAs
        ? [time(each.at), "redriven by an operator", h("span", {}, "as ", h("a", {href: `#/message/${each.redrivenAs}`}, `message ${each.redrivenAs}`))]
        : [time(each.at), h("span", {}, "failed: ", parts(each.errorCode, ".")), each.reason]);
    return [
        h("h2", {}, known === letter.history ? "Attempts and redrives" : "Attempts"),
        table("Attempts", ["When", "What", "Details"], rows, "It was never sent."),
        letter.attempts > failed ? h("p", {class: "hint"}, `${things(letter.attempts - failed, "earlier attempt")}: no error is known, as after a lost connection or a restart.`) : "",
    ];
}

/** What happened to a dead letter that has gone. */
async function end(id, me) {
    const gone = await find(letterOf(id).below("end", {isNamed: false}));
    if (gone === null) {
        return h("p", {}, "There is no such dead letter, or it has been removed, and its outcome is not recorded.");
    }
    const message = gone.message ? [" Before, it was the message ", h("a", {href: `#/message/${encodeURIComponent(gone.message)}`}, gone.message), "."] : null;
    if (gone.end === "discarded") {
        return h("p", {}, "It was ", discarded(gone, me), ".", message);
    }
    if (gone.end === "restored") {
        return h("p", {}, `It was discarded, and restored by ${gone.who || "an operator"} at ${time(gone.at)} as `, h("a", {href: `#/dead-letters/${gone.restoredAs}`}, gone.restoredAs), ".", message);
    }
    const who = gone.job ? h("a", {href: `#/jobs/${gone.job}`}, `Job ${gone.job}`) : me.everywhere === null ? null : h("a", {href: `#/audit?contains=${id}`}, "Who did it, in the audit");
    return h("p", {}, `It was ${gone.edited ? "edited and sent again" : "redriven"} at ${time(gone.at)} as `, h("a", {href: `#/message/${gone.redrivenAs}`}, `message ${gone.redrivenAs}`),
        await since(gone.redrivenAs), ". ", who && [who, "."], message);
}

/** What became of a message that was sent again, by receiver. */
async function since(id) {
    const told = await find(messageOf(id));
    const states = told?.receivers.slice(0, NAMED).map((each) => `${each.state}: ${each.receiver}`) ?? [];
    return states.length ? [", now ", h("strong", {}, states.join(", ")), told.receivers.length > NAMED ? ", …" : ""] : "";
}

/** The button that edits the message and sends it. */
function editing(id, letter, output, again) {
    const field = json("data", "Data of the message", letter.data, "JSON. A field that is shown as *** keeps its value.");
    return action({
        name: "Edit and send again",
        question: async () => ({
            title: "Edit and send again",
            effect: `Sends the message with this data to ${name(letter)}. The original, ${id}, goes to the bin, which keeps it for a day; the new message names it.`,
            button: "Send",
            fields: [field],
        }),
        work: async (reason, _, {data}) => {
            const told = await post(letterOf(id).below("edit", {isNamed: false}), {data, ...(reason ? {reason} : {})});
            return ["Sent as ", h("a", {href: `#/message/${told.redrivenAs}`}, `message ${told.redrivenAs}`), `. The bin has the original, ${told.original}.`];
        },
        output,
        again,
    });
}

export function deadLetter({words: [id], me, again}) {
    let shown = null;
    let offered = "";
    const body = h("div", {class: "stack"});
    const output = h("p", {class: "outcome"});
    const choice = h("div", {class: "actions"});
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/dead-letters"}, "All dead letters")),
        h("h1", {}, `Dead letter ${id}`), choice, result(output), body);

    async function refresh() {
        const letter = await find(letterOf(id));
        if (letter === null) {
            await showGone();
            return;
        }
        shown = letter;
        if (offered !== "works") {
            offered = "works";
            const made = works(letter.may, () => ({ids: [id]}), output, again).map(([button, does]) => described(button, does));
            choice.replaceChildren(...made, ...may(letter.may, "operate") ? [described(editing(id, letter, output, again), "sends other data to the receiver")] : []);
        }
        swap(body,
            h("div", {class: "columns"}, h("section", {class: "card"}, about(letter)), h("section", {class: "stack"}, attempts(letter))),
            ...sections([["Data", letter.data], ["Options of the publish", letter.qos], ["Other ext", letter.ext]]));
    }

    /** It has gone: into the bin, from where it can come back, or for good. */
    async function showGone() {
        const [told, kept] = [await end(id, me), await find(new Resource("/dead-letters/bin/{id}", {id}, {id}))];
        const now = kept !== null && may(kept.may, "operate") ? "restore" : "none";
        if (offered !== now) { // a button that has the focus, or works, stays
            offered = now;
            choice.replaceChildren(...now === "restore" ? [restored(id, kept, output, again)] : []);
        }
        const letter = kept ?? shown;
        const until = kept && h("p", {class: "hint"}, `The bin keeps it for ${span(kept.discarded.until - Date.now())} more.`);
        swap(body, told, ...[until, letter && h("section", {class: "card"}, facts(reasons(letter)))].filter(Boolean),
            ...kept === null ? [] : sections([["Data", kept.data], ["Options of the publish", kept.qos]]));
    }

    return {element, refresh, everyMs: 3000};
}

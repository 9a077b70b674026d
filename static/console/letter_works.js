/**
 * What operators do with dead letters: redrive, discard, and undo of a discard, each after a question that names receivers and
 * number.
 */

import {post} from "./api.js";
import {awayText} from "./conditions.js";
import {action, may} from "./dialogs.js";
import {h, keep, say} from "./elements.js";
import {count, things} from "./format.js";
import {work} from "./jobs.js";

const NAMED = 3;

/** The receiver as operators name it: client/joe/1. */
export function name(letter) {
    return letter.receiver.replace(/^\/node\/[^/]+\//, "");
}

/** "3 receivers: client/joe/1 (500), client/ann/1 (467)" of pairs of name and number. */
export function phrase(pairs, values, isPartial = false) {
    if (values === 1 && !isPartial) {
        return `the receiver ${pairs[0][0]}`;
    }
    const some = pairs.slice(0, NAMED).map(([each, number]) => `${each} (${count(number)})`).join(", ");
    const more = values > NAMED ? ` and ${count(values - NAMED)} more` : "";
    return `${isPartial ? "at least " : ""}${things(values, "receiver")}: ${some}${more}`;
}

/** Whether the queue of a receiver has no room for its dead letters. */
function lacksRoom({room, count: number}) {
    return typeof room === "number" && room < number;
}

/** What keeps a redrive from arriving at once at these receivers, and what it does about that: sentences. */
function obstacles(groups) {
    const some = groups.filter((each) => lacksRoom(each) || each.awaySince).slice(0, NAMED).map((each) => {
        const room = lacksRoom(each) ? `has room for ${count(each.room)} of ${things(each.count, "dead letter")}` : "has room for all";
        return `The queue of ${each.value} ${room}${each.awaySince ? `, and ${awayText(each.awaySince)}: start it first` : ""}.`;
    });
    return [...some, groups.some(lacksRoom) ? "What has no room waits for it, and continues by itself. If nothing can be sent for ten minutes, the rest stays." : ""].filter(Boolean).join(" ");
}

/**
 * Buttons that redrive or discard what `which` says, ids or a filter, each after a question that says how many those are, for which
 * receivers, and whether their queues have room. What arrives after the question is not part of the answer.
 */
export function works(role, which, output, again, began) {
    let until = "";
    let waits = false;
    const make = (verb, text, needed, effect, more = {}, kind = "") => may(role, needed) && action({
        name: text,
        question: async () => {
            const {count: number, receivers: {groups, values, partial}, ...asked} = await post(`/dead-letters/${verb}`, {...which(), dryRun: true});
            until = asked.until ?? "";
            if (number === 0) {
                return "No dead letter matches.";
            }
            const isOne = Boolean(which().receiver); // the groups of many dead letters are counted in part
            const receivers = phrase(groups.map((each) => [each.value, each.count]), values, partial && !isOne);
            const isRedrive = verb === "redrive" && !more.toChannel;
            waits = isRedrive && groups.some(lacksRoom);
            return {title: text, effect: effect(things(number, "dead letter"), receivers), warning: isRedrive ? obstacles(groups) : "",
                button: `${text}: ${things(number, "dead letter")}`, thing: verb === "redrive" && !which().ids ? "dead letters" : ""};
        },
        work: (reason, rate) => {
            const ids = which().ids;
            const body = {...which(), ...until ? {until} : {}, ...more, ...(reason ? {reason} : {}), ...(rate ? {rate} : {})};
            return ids && !waits ? few(verb, body, output, again) : many(verb, body, output, again);
        },
        output,
        again,
        began,
        kind,
    });
    return [
        [make("redrive", "Redrive", "operate", (number, receivers) => `Sends ${number} again to ${receivers}. What fails again becomes a new dead letter, which this redrive does not send once more.`), "sends to the receivers again"],
        [make("redrive", "Redrive to channel", "operate", (number, receivers) => `Publishes ${number} of ${receivers} to their channels again: all current subscribers get them.`, {toChannel: true}), "publishes again, to all subscribers"],
        [make("discard", "Discard", "destroy", (number, receivers) => `Discards ${number} of ${receivers}. The bin keeps them for a day: until then you can undo it.`, {}, "danger"), "moves into the bin, for a day"],
    ].filter(([button]) => button);
}

/** Does it to those that are selected, at once, and says what came of it. */
async function few(verb, body, output, again) {
    const field = verb === "redrive" ? "redriven" : "discarded";
    const told = await post(`/dead-letters/${verb}`, body);
    const left = told.undoneCount ? ` ${things(told.undoneCount, "dead letter")} stayed: ${told.undone[0].message}` : "";
    const text = `${things(told[field], "dead letter")} ${field}.${left}`;
    if (verb === "redrive" && told.redriven) {
        const ids = body.ids.filter((id) => !location.hash.endsWith(id)).slice(0, NAMED); // its own page says it already
        const which = ids.length < told.redriven ? `the first ${ids.length}` : ids.length === 1 ? "it" : "them";
        return [text, ids.length ? ` What became of ${which}: ` : "", ...ids.map((id, index) => [index ? ", " : "", h("a", {href: `#/dead-letters/${id}`}, id)]).flat()];
    }
    return verb === "discard" && told.discarded ? [text, " ", undo({ids: body.ids}, output, again)] : text;
}

/** All that match are the work of a job. */
async function many(verb, body, output, again) {
    const told = await work({what: verb, ...body}, output);
    const job = verb === "discard" && told?.flat().find((each) => each.hash?.startsWith("#/jobs/"))?.hash.slice("#/jobs/".length);
    return job ? [...told, " ", undo({job}, output, again)] : told;
}

/** Restores what was discarded; the server works on them for some seconds at a time. Returns their number, the new ids of some, and those that stay, with the ids of the messages sent in their place. */
async function restore(choice) {
    let [number, after] = [0, ""];
    const [ids, edited] = [[], {}];
    do {
        const told = await post("/dead-letters/restore", {...choice, ...(after && !choice.ids ? {after} : {})});
        number += told.restored;
        ids.push(...Object.values(told.ids));
        Object.assign(edited, told.edited);
        after = choice.ids ? "" : told.next;
    } while (after);
    return {number, ids, edited: Object.entries(edited)};
}

/** "2 dead letters restored: …, …." with links to the first of the new ones. */
function restoredText({number, ids, edited}) {
    const links = ids.slice(0, NAMED).map((id, index) => [index ? ", " : ": ", h("a", {href: `#/dead-letters/${id}`}, id)]).flat();
    const stay = edited.slice(0, NAMED).map(([id, message], index) => [index ? ", " : ": ", h("a", {href: `#/dead-letters/${id}`}, id), " (sent as ", h("a", {href: `#/message/${message}`}, message), ")"]).flat();
    return [
        `${things(number, "dead letter")} restored`, ...links, number > NAMED ? ` and ${count(number - NAMED)} more.` : ".",
        ...edited.length ? [` Restored only one by one, because an edited message was sent in their place`, ...stay, edited.length > NAMED ? ` and ${count(edited.length - NAMED)} more.` : "."] : [],
    ];
}

/** The button that undoes a discard at once: nothing is lost by that. */
function undo(choice, output, again) {
    const button = h("button", {type: "button", onclick: async () => {
        button.disabled = true;
        try {
            output.replaceChildren(...restoredText(await restore(choice)));
            keep(output);
            say(output.textContent);
        } catch (error) {
            button.disabled = false;
            say(error.message);
            output.append(" ", h("span", {class: "trouble"}, error.message));
            keep(output);
            return;
        }
        await again();
    }}, "Undo");
    return button;
}

/** The button that restores one dead letter of the bin. */
export function restored(id, kept, output, again) {
    const edited = kept.discarded.editedAs ? ` Its edited message was sent as ${kept.discarded.editedAs} all the same.` : "";
    return action({
        name: "Restore",
        question: async () => ({title: "Restore", effect: `Makes a dead letter of ${name(kept)} of it again, under a new id.${edited}`, button: "Restore"}),
        work: async (reason) => {
            const told = await post("/dead-letters/restore", {ids: [id], ...(reason ? {reason} : {})});
            return told.ids[id] ? ["Restored as ", h("a", {href: `#/dead-letters/${told.ids[id]}`}, told.ids[id]), "."] : "It is no longer in the bin.";
        },
        output,
        again,
    });
}

/** The button that restores what is selected in the bin, or all that match there. */
export function restoring(role, which, counted, output, again) {
    return may(role, "operate") && action({
        name: "Restore",
        question: async () => {
            const {number, receivers} = await counted();
            const effect = number === null ? "Makes dead letters again of all that match, under new ids."
                : `Makes ${things(number, "discarded dead letter")}${receivers && ` of ${receivers}`} dead letters again, under new ids.`;
            return {title: "Restore", effect, button: number === null ? "Restore all that match" : `Restore ${things(number, "dead letter")}`};
        },
        work: async (reason) => restoredText(await restore({...which(), ...(reason ? {reason} : {})})),
        output,
        again,
    });
}

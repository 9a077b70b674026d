/**
 * How receivers stand, in plain words, and why: each cause with its times. The words of the API stand in the tooltips.
 */

import {coded, h} from "./elements.js";
import {capital, count, span, time, took} from "./format.js";

/** What each word means, and how it looks: bad where messages are stuck or lost. */
const CONDITIONS = {
    "rejecting everything": ["bad", "All its messages become dead letters."],
    "on hold": ["bad", "Its messages wait until an operator releases it."],
    full: ["bad", "Its queue takes no more messages."],
    "expired token": ["bad", "It gets nothing until its client logs in again."],
    "rejects messages": ["bad", "Its client takes messages and rejects some or all of them: they become dead letters."],
    "waiting to retry": ["warn", "Its client has failed; its messages go to it again after a pause."],
    "soon full": ["warn", "Its queue grows, and will take no more messages within half an hour."],
    "falling behind": ["warn", "Its client is there, and takes less than comes, or its oldest message waits for a minute or longer."],
    "catching up": ["warn", "Its backlog shrinks, but its oldest message still waits for a minute or longer."],
    "without a member": ["", "No session takes its messages."],
    "no subscriptions": ["", "Its client is there, and is subscribed to nothing, as one that only publishes."],
    away: ["", "Its client is not there; its messages wait for it."],
    connected: ["good", "Its client is there."],
};
/** How a group or a subject stands whose members take nothing. */
const MEMBERS = ["without a member", "away"];
export const WORDS = Object.keys(CONDITIONS);

/** How a receiver stands, as words: one element, for a cell of a table lays out each of its children on a phone. */
export function standing({conditions = [], causes = [], state}) {
    // That the client is there says something only if nothing is wrong, or while it is away.
    return h("span", {class: "states"}, conditions.filter((word, index) => index === 0 || word !== "connected").map((word, index) => {
        const [usual, meaning] = CONDITIONS[word] ?? ["", ""];
        // As urgent as its cause, which may be worse for one receiver than for another.
        const level = causes.find(({kind}) => (kind === "members" ? MEMBERS.includes(word) : CAUSES[kind] === word))?.level ?? usual;
        return [index ? ", " : "", h("span", {class: `mark ${level === "info" ? "" : level}`, title: `${meaning} State in the API: ${state}.`}, word)];
    }));
}

/** The causes that a list can be filtered by, where the word of the API does not say it. */
export const CAUSES = {away: "away", members: "without a member", full: "full", rejecting: "rejecting everything", held: "on hold", token: "expired token", rejects: "rejects messages", filling: "soon full", slow: "falling behind", recovering: "catching up", refused: "refused login", retry: "waiting to retry", unclaimed: "messages that no listener takes", overflow: "messages were turned away", "nearly-full": "nearly full"};

/** The times of a cause, by its kind. */
const TIMES = {
    rejecting: () => "",
    rejects: ({since, at}) => `since ${time(since)}, the last one ${span(Date.now() - at)} ago`,
    filling: ({fullAt, awaySince}) => [`at ${time(fullAt)}`, awayText(awaySince)].filter(Boolean).join("; "),
    held: ({since, who, id}) => lasting(since) + (id && who ? `, by ${who}` : ""),
    full: ({since, at, awaySince}) => [since ? `(since ${time(since)}, the last one ${span(Date.now() - at)} ago)` : "", awayText(awaySince)].filter(Boolean).join("; "),
    overflow: ({since, at}) => `(from ${time(since)} to ${time(at)})`,
    token: ({since, at}) => `${at ? "expired " : ""}at ${time(since)}, ${span(Date.now() - since)} ago${at ? `; the last try ${span(Date.now() - at)} ago` : ""}`,
    refused: ({since, at, count: number, from}) => [number > 1 && `since ${time(since)}`, `${number > 1 ? "the last one " : ""}at ${time(at)}, ${span(Date.now() - at)} ago`, from && `from ${from}`].filter(Boolean).join(", "),
    retry: ({next, number, of}) => `the next try ${next > Date.now() ? `in ${span(next - Date.now())}` : "now"}, number ${count(number)}${of < 0 ? "" : ` of ${count(of)}`}`,
    away: ({since}) => since ? lasting(since) : "",
    members: ({since}) => since ? lasting(since) : "",
    slow: pace,
    recovering: pace,
    busy: ({since}) => since ? `for ${span(Date.now() - since)}` : "",
};

/** How long a receiver has been behind, or has been catching up, and how long its oldest message waits. */
function pace({since, oldest, usualMs}) {
    const usual = usualMs === undefined ? "" : `; usually ${took(usualMs)}`;
    return oldest ? `${lasting(since)}; its oldest message waits for ${span(Date.now() - oldest)}${usual}` : `for ${span(Date.now() - since)}${usual}`;
}

/** Since when a client is away; empty if it is there. */
export function awayText(since) {
    return since ? `its client is away ${lasting(since)}` : "";
}

function lasting(since) {
    return `since ${time(since)}, ${span(Date.now() - since)} ago`;
}

/** A cause with its times. */
export function causeText(cause) {
    const times = TIMES[cause.kind]?.(cause) ?? "";
    return [coded(capital(cause.text)), times ? [" ", h("span", {class: "hint times"}, times)] : ""];
}

/**
 * The causes of a receiver in a list: those that are trouble; without any, what explains it. The first has one line, and all of it
 * and the others are there on demand.
 */
export function causesInList({name, causes = [], lastFailure, waiting}) {
    const trouble = causes.filter(({level}) => level !== "info");
    const texts = (trouble.length ? trouble : causes).map(causeText);
    if (texts.length === 0 && waiting && lastFailure) {
        texts.push(coded(`last failure: ${lastFailure.code}: ${lastFailure.reason}`));
    }
    const [first, ...others] = texts;
    return first === undefined ? "" : h("details", {class: "why", "data-key": name},
        h("summary", {}, h("span", {class: "line"}, first), others.length ? h("span", {class: "hint more", title: `and ${count(others.length)} more`}, `+${count(others.length)}`) : null),
        others.map((each) => h("div", {}, each)));
}

/** What to do, in which the dead letters of the receiver are a link to them. */
export function advice(text = "", name = "") {
    return name.startsWith("client/") ? text.split(/([Rr]edrive its dead letters)/).map((part, index) => index % 2 ? h("a", {href: `#/dead-letters?receiver=${encodeURIComponent(name)}`}, part) : part) : text;
}

/** The causes on the page of a receiver, each with what to do. */
export function causesOf(receiver) {
    return (receiver.causes ?? []).map((each) => h("article", {class: `finding ${each.level}`},
        h("h2", {}, causeText(each)), h("p", {class: "hint advice"}, advice(each.advice, receiver.name)),
        each.shape ? h("p", {}, coded(`${each.shape}.`)) : null,
        each.kind === "rejects" && each.of > each.count ? h("p", {class: "hint"}, "What tells the rejected messages from those that it took: see the report of ", h("code", {}, "crewel pipeline report --html report.html"), ". The server does not keep the data of messages that were taken.") : null));
}


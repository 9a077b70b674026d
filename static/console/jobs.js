/**
 * Jobs: redrives, discards and drains of many, which the server works off whether a page is open or not.
 */

import {get, post} from "./api.js";
import {action, may} from "./dialogs.js";
import {facts, h, result, pageSize, pager, receiverLink, select, swap, table, topicLink} from "./elements.js";
import {ago, count, sentence as asSentence, span, things, time} from "./format.js";
import {jobOf} from "./resource.js";

const PAGE = 100;
const FOLLOW_MS = 1000;
const LETTERS = 100;
const NAMED = 3;
const STATES = ["running", "paused", "stopped", "done", "failed"];
const HEADINGS = ["Job", "What", "State", "Progress", "Began", "By", "Reason"];

/** What each kind of job does its work on, and what that is afterwards. */
const KINDS = {redrive: ["dead letter", "redriven"], discard: ["dead letter", "discarded"], drain: ["message", "turned into dead letters"]};

/** What can be done to a job: in which states, and what it means. */
const STEERINGS = [
    ["pause", "Pause", ["running"], "Pauses the job. Completed work is not undone."],
    ["resume", "Resume", ["paused"], "Lets the job continue."],
    ["stop", "Stop", ["running", "paused"], "Stops the job for good. Completed work is not undone."],
];

function hrefOf(id) {
    return `#/jobs/${id}`;
}

/** A sentence about how far the job is. */
function sentence(job) {
    const [thing, done] = KINDS[job.what];
    const far = job.state === "running" || job.state === "paused" ? `${count(job.done)} of ${things(job.total, thing)} ${done}` : `${things(job.done, thing)} ${done}`;
    const left = job.undone ? ` ${things(job.undone, thing)} stayed: ${job.errors[0]?.message ?? "see the job"}.` : "";
    if (job.waitsFor?.length) {
        return `${far}.${left} The job is ${job.error}, and continues when there is some. Stop it to leave the others.`;
    }
    const how = job.state === "done" ? "" : ` The job is ${job.state}${job.state === "running" ? ", and continues when this page is closed" : ""}.`;
    return `${far}.${left}${how}${job.error ? ` ${job.error}.` : ""}`;
}

/** What became of the messages of a redrive: "3 acknowledged, 2 dead letters again". Empty where it is not known. */
function outcome({states = {}, partial, readTo}, done = 0) {
    const told = Object.entries(states).sort().map(([state, number]) => state === "dead letter" ? `${things(number, state)} again` : `${count(number)} ${state}`);
    const isWhole = !partial && !states.waiting && Object.values(states).reduce((sum, number) => sum + number, 0) === done;
    return (told.length && !isWhole ? "so far " : "") + told.join(", ") + (partial && told.length ? `, counted up to ${time(readTo)}; the server is still counting` : "");
}

/** What became of the messages of a job: the server reads on with each request. */
async function wholeOutcome(id, output) {
    for (let last = null; ;) {
        const told = await get(jobOf(id).below("letters", {isNamed: false}), {count: 1});
        if (!told.partial || told.readTo === last || !output.isConnected) {
            return told;
        }
        last = told.readTo;
    }
}

/**
 * Begins a job and shows in `output` how far it is, until it has ended or the operator closes that. Returns what is left to say; null for
 * an operator who has left the view, and has seen that it began: the job has a page of its own. If it cannot be asked for a
 * while, it continues all the same.
 */
export async function work(body, output) {
    let job = await post("/jobs", body);
    let canAsk = true;
    const wasSeen = output.isConnected;
    const told = () => [sentence(job), " ", h("a", {href: hrefOf(job.id)}, `Job ${job.id}`)];
    while (job.state === "running" && output.isConnected && canAsk) {
        if (!output.classList.contains("closed")) {
            output.replaceChildren(...told());
        }
        await new Promise((wake) => setTimeout(wake, FOLLOW_MS));
        job = await get(jobOf(job.id)).catch((error) => {
            canAsk = ![401, 403, 404].includes(error.status); // else the sign-in has ended, or the job is forgotten
            return job;
        });
    }
    if (wasSeen && !output.isConnected) {
        return null;
    }
    const became = await wholeOutcome(job.id, output).then((each) => outcome(each, job.done), () => "");
    return became ? [...told(), `: ${became}.`] : told();
}

export function jobs({query, go}) {
    const asked = Object.fromEntries(query);
    const form = h("form", {class: "filters"}, select("state", "State", [["", "any"], ...STATES.map((each) => [each, each])], asked.state ?? "", go));
    const list = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Jobs"), form, list);

    async function refresh() {
        const told = await get("/jobs", {state: asked.state, after: asked.after, count: pageSize(PAGE)});
        swap(list,
            table("Jobs", HEADINGS, told.jobs.map(row), asked.state ? "No job matches." : "No jobs. A redrive or discard of many dead letters, or a drain of many receivers, stands here with its progress."),
            pager(asked, told.next, go));
    }

    return {element, refresh, everyMs: 3000, liveMs: 10_000, hears: ["job"]};
}

function row(job) {
    return [h("a", {href: hrefOf(job.id)}, job.id), job.what, state(job), progress(job), time(job.began), job.who, job.reason];
}

function state(job) {
    const level = job.waitsFor?.length ? "warn" : {done: job.undone ? "warn" : "good", failed: "bad", stopped: "bad"}[job.state] ?? "";
    return h("span", {class: `mark ${level}`, title: `State in the API: ${job.state}.`},
        job.waitsFor?.length ? "waiting for room" : job.state === "done" && job.undone ? "done in part" : job.state);
}

function progress(job) {
    const worked = job.done + job.undone;
    const left = job.undone ? `, ${count(job.undone)} stayed` : "";
    return h("span", {},
        h("progress", {max: Math.max(job.total, worked, 1), value: worked, "aria-label": "Progress"}),
        ` ${count(job.done)} of ${count(job.total)}${left}`);
}

export function job({words: [id], query, go, again}) {
    const head = h("div", {class: "stack"});
    const actions = h("div", {class: "actions"});
    const output = h("p", {class: "outcome"});
    const errors = h("section", {class: "stack"});
    const letters = h("section", {class: "stack"});
    const asked = Object.fromEntries(query);
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/jobs"}, "All jobs")), h("h1", {}, `Job ${id}`), head, actions, result(output), errors, letters);
    let known = null;

    async function refresh() {
        let told;
        try {
            told = await get(jobOf(id));
        } catch (error) {
            if (error.status !== 404) {
                throw error;
            }
            swap(head, h("p", {class: "hint"}, asSentence(error.message)));
            actions.replaceChildren();
            known = null; // it may come back
            return;
        }
        const role = told.what === "discard" ? "destroy" : "operate";
        const possible = STEERINGS.filter(([verb, , states]) => states.includes(told.state) && may(told.may, verb === "resume" ? role : "operate"));
        if (known !== possible.map(([verb]) => verb).join()) {
            known = possible.map(([verb]) => verb).join();
            swap(actions, ...possible.map(button));
        }
        swap(head, about(told));
        swap(errors, ...told.errors.length ? [
            h("h2", {}, "What stayed"),
            h("p", {class: "hint"}, `The first ${count(told.errors.length)} of ${count(told.undone)}.`),
            table("What stayed", [told.what === "drain" ? "Receiver" : "Dead letter", "Code", "Why"], told.errors.map((each) => [
                told.what === "drain" ? each.id : h("a", {href: `#/dead-letters/${each.id}`}, each.id), each.errorCode, each.message])),
        ] : []);
        if (told.what !== "drain") {
            await showLetters(told);
        }
    }

    async function showLetters({what, done}) {
        const page = await get(jobOf(id).below("letters", {isNamed: false}), {after: asked.after, count: LETTERS});
        const rows = page.letters.map((each) => [
            h("a", {href: `#/dead-letters/${each.letter}`}, each.letter), time(each.at), each.to.startsWith("/") ? topicLink(each.to) : receiverLink(each.to),
            h("a", {href: `#/message/${encodeURIComponent(each.redrivenAs || each.message)}`}, each.redrivenAs || each.message),
            ...what === "redrive" ? [each.state ? h("span", {class: `mark ${{acknowledged: "good", "dead letter": "bad"}[each.state] ?? ""}`}, each.state) : ""] : []]);
        swap(letters,
            h("h2", {}, what === "redrive" ? "Where they are now" : "What was discarded"),
            h("p", {class: "hint"}, outcome(page, done)),
            table("Dead letters", what === "redrive" ? ["Dead letter", "At", "To", "Now message", "State"] : ["Dead letter", "At", "Receiver", "Message"], rows,
                page.next ? "None so far; the next page continues." : done ? "No longer recorded." : "None yet."),
            pager(asked, page.next, go));
    }

    function button([verb, text, , effect]) {
        return action({
            name: text,
            question: async () => ({title: `${text}: job ${id}`, effect: `${effect} ${sentence(await get(jobOf(id)))}`, button: text}),
            work: async (reason) => sentence(await post(jobOf(id).below(verb), reason ? {reason} : {})),
            output,
            again,
        });
    }

    return {element, refresh, everyMs: 2000, hears: ["job"]};
}

/** What the job was begun for. */
function chosen({ids, sessions, first, ...filters}) {
    if (ids !== undefined) {
        return things(ids, "selected dead letter");
    }
    if (sessions !== undefined) {
        return sessions === 1 ? receiverLink(first) : [receiverLink(first), ` and ${things(sessions - 1, "other")}`];
    }
    return Object.entries(filters).map(([name, value]) => `${name} ${name === "since" ? time(value) : name === "until" ? time(Number(value.split("-")[0])) : value}`).join(", ") || "all";
}

function about(told) {
    return h("section", {class: "card"}, facts([
        ["What", `${told.what}${told.toChannel ? " to the channel" : ""}`],
        ["State", state(told)],
        ["Progress", progress(told)],
        ["Choice", chosen(told.choice)],
        ["Waits for", told.waitsFor?.length ? ["room in the queue of ", told.waitsFor.slice(0, NAMED).map((each, index) => [index ? ", " : "", receiverLink(each)]), told.waitsFor.length > NAMED ? ` and ${count(told.waitsFor.length - NAMED)} more` : ""] : ""],
        ["Gives up after", told.waitForRoomMs && told.ended === null ? `${span(told.waitForRoomMs)} in which nothing could be sent` : ""],
        ["At most", told.rate ? `${count(told.rate)} per second` : ""],
        ["Began", `${ago(told.began)}, by ${told.who}`],
        ["Reason", told.reason],
        ["Ended", told.ended ? `${ago(told.ended)}, after ${span(told.ended - told.began)}` : ""],
        ["Changed by", told.changedBy],
        ["Runs at", told.node],
        ["Trouble", told.waitsFor?.length ? "" : told.error],
    ]));
}

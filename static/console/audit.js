/**
 * The audit: what operators did and were refused, on what, to how many, and why.
 */

import {get} from "./api.js";
import {filters, h, pageSize, pager, select, swap, table} from "./elements.js";
import {count, time, things} from "./format.js";

const PAGE = 100;
const SHOWN = 5;
const FIELDS = [["contains", "Contains", "search"], ["who", "Operator"], ["what", "What begins with"], ["about", "On what: client/joe"], ["since", "Since: 2h, 2026-11-22"]];
const OUTCOMES = ["done", "refused", "failed"];
const HEADINGS = [{text: "At", class: "id"}, "Operator", "What", "On what", {text: "How many", class: "number"}, "Reason", "Outcome", "Details"];

/** The word of this page for what the API calls `activate`, also while one types it. */
const RELEASE = /^rel(e(a(se?)?)?)?(?=$| )/;
/** A time in milliseconds since 1970: alone, or as the beginning of an id of a dead letter. */
const MOMENT = /^(1[0-9]{12})(-[0-9]+)?$/;

/** The details that are such. */
const TIMES = ["until", "since", "before", "at"];

export function audit({query, go}) {
    const asked = Object.fromEntries(query);
    const wanted = Object.fromEntries([...FIELDS.map(([name]) => name), "outcome"].filter((name) => asked[name])
        .map((name) => [name, name === "what" ? asked[name].replace(RELEASE, "activate") : asked[name]]));
    const form = filters(FIELDS, asked, go, select("outcome", "Outcome", [["", "any"], ...OUTCOMES.map((each) => [each, each])], asked.outcome ?? "", go));
    const total = h("p", {class: "hint"});
    const list = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Audit"), form, total, list);

    async function refresh() {
        const told = await get("/audit", {...wanted, after: asked.after, count: pageSize(PAGE)});
        total.textContent = `${things(told.kept, "entry", "entries")} kept, of at most ${count(told.max)}${told.held.length ? `; the most: ${told.held.slice(0, 3).map((each) => `${each.who || "refused sign-ins"} ${count(each.entries)}`).join(", ")}` : ""}.`;
        swap(list,
            table("Audit", HEADINGS, told.entries.map(row), told.next ? "No match so far; the search continues on the next page." : Object.keys(wanted).length ? "No entry matches." : "Nothing yet. What operators do, and what is refused to them, stands here."),
            pager(asked, told.next, go,
                h("a", {class: "button", href: `/admin/api/audit/export?${new URLSearchParams(wanted)}`, download: "audit.ndjson"}, "Export")));
    }

    return {element, refresh, everyMs: 10_000};
}

function row(entry) {
    return [
        time(entry.at),
        entry.who ? h("span", {title: entry.role && `Role: ${entry.role}`}, entry.who) : "not signed in",
        entry.what.replace(/^activate/, "release"),
        entry.about ? about(entry.about) : letters(entry.details?.ids),
        entry.count === null ? "" : count(entry.count),
        entry.reason,
        h("span", {class: `mark ${entry.outcome === "done" ? "good" : "bad"}`}, [entry.outcome, entry.errorCode].filter(Boolean).join(": ")),
        details(entry),
    ];
}

/** Dead letters and messages as links to what became of them; of a job it is how many there were. */
function letters(ids) {
    return Array.isArray(ids) ? h("span", {}, ids.slice(0, SHOWN).map((id) => [h("a", {href: `#/${id.includes("-") ? "dead-letters" : "message"}/${id}`}, id), " "]), ids.length > SHOWN ? "…" : "") : "";
}

/** What the names of details mean to a reader. Others are shown as they are. */
const WORDS = {toChannel: "to their channels", forGood: "for good", restoredAs: "restored as", redrivenAs: "redriven as", undone: "not done", asked: "of"};

/** What belongs to an entry and is not in another column. */
function details({about: name, count: number, details: told = {}}) {
    const isSaid = ([key, value]) => value === false || value === "" || (key === "undone" && value === 0) || (key === "asked" && value === number) || (key === "ids" && !name && Array.isArray(value));
    return h("span", {class: "data"}, Object.entries(told ?? {}).filter((each) => !isSaid(each)).map(([key, value], index) => [index ? "; " : "", WORDS[key] ?? key, " ",
        key === "restoredAs" ? letters(value) : key === "redrivenAs" ? h("a", {href: `#/message/${value}`}, `message ${value}`)
            : value === true ? "" : readable(key, value)]));
}

/** A value of a detail as a text: those of `until` and `since` are times. */
function readable(name, value) {
    const [, at] = TIMES.includes(name) ? MOMENT.exec(value) ?? [] : [];
    if (at !== undefined) {
        return time(Number(at));
    }
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
        return Object.entries(value).map(([key, each]) => `${key} ${readable(key, each)}`).join(", ");
    }
    return typeof value === "string" ? value : JSON.stringify(value);
}

/** A session, a channel or a job as a link to its view. */
function about(name) {
    if (/^[0-9]+-[0-9]+$/.test(name)) {
        return h("a", {href: `#/jobs/${name}`}, name);
    }
    const path = name.split("/").map(encodeURIComponent).join("/");
    if (/^client\/[^/]+\/[^/]+$/.test(name)) {
        return h("a", {href: `#/receivers/${path}`}, name);
    }
    return name.startsWith("/") ? h("a", {href: `#/topics${path}`}, name) : name;
}

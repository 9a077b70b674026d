/**
 * Dead letters: their groups, a list that the server filters, and redrive and discard of a selection, or of all that match; and
 * the bin, which has those that were discarded.
 */

import {get} from "./api.js";
import {data, described, filtered, filters, h, result, pageSize, pager, parts, swap, table} from "./elements.js";
import {count, span, things, time} from "./format.js";
import {name, phrase, restoring, works} from "./letter_works.js";
import {Selection} from "./selection.js";

const PAGE = 50;
const FIELDS = [
    ["contains", "Text in the dead letter", "search"], ["field", "Field: order=100"], ["code", "Code begins with"], ["channel", "Channel or pattern"],
    ["receiver", "Receiver"], ["since", "Since: 2h, 2026-11-22"],
];
const GROUPED = 8;
const SEPARATORS = {code: ".", likeness: ", "};
/** What dead letters are grouped by: the kind, its heading, and the filter that a group stands for. */
const KINDS = [["code", "By code", "code"], ["reason", "By reason", "deadReason"], ["channel", "By channel", "channel"], ["receiver", "By receiver", "receiver"], ["likeness", "By shape of the data", "like"], ["returns", "By failed redrives", "returns"]];
const COLUMNS = [{text: "Dead letter", class: "id"}, {text: "Code", class: "code"}, {text: "Channel", class: "channel"}, {text: "Receiver", class: "receiver"}, {text: "Reason", class: "reason"}, {text: "Data", class: "payload"}];

function filled(asked) {
    const names = [...FIELDS.map(([field]) => field), "like", "deadReason", "returns"];
    return Object.fromEntries(names.filter((field) => asked[field]).map((field) => [field, asked[field]]));
}

/** What the list is filtered by, in words. A shape has only an id in the address. */
function said({like, deadReason, returns, ...others}) {
    const names = {contains: "text", field: "field", code: "code", channel: "channel", receiver: "receiver", since: "since"};
    return [...Object.entries(others).map(([name, value]) => [names[name], value]), ["reason", deadReason], ["shape of the data", like && "as chosen below"], ["", returns && cameBack(returns)]];
}

/** How many are chosen, and a phrase that names their receivers. */
function chosenOf(letters) {
    const numbers = new Map();
    for (const letter of letters) {
        numbers.set(name(letter), (numbers.get(name(letter)) ?? 0) + 1);
    }
    return {number: letters.length, receivers: phrase([...numbers].sort(([, one], [, other]) => other - one), numbers.size)};
}

export function deadLetters({query, go, me, again, changed}) {
    const asked = Object.fromEntries(query);
    const wanted = filled(asked);
    const form = filters(FIELDS, asked, go);
    const groups = h("div", {class: "cards groups"}, KINDS.map(([, heading]) => h("section", {class: "card"}, h("h2", {}, heading))));
    const total = h("p", {class: "hint"});
    const output = h("p", {class: "outcome"});
    const list = h("div", {class: "stack letters"});
    const choice = h("div", {class: "actions bulk"});
    const selection = new Selection("dead letter", () => enable());
    const which = () => selection.isAll ? {all: true, ...wanted} : {ids: selection.ids};
    const made = works(me.role, which, output, again, () => selection.clear());
    const buttons = made.map(([button]) => button);
    const kept = h("span", {});
    choice.replaceChildren(...made.map(([button, does]) => described(button, does)), selection.element);
    const element = h("div", {class: "stack"}, h("h1", {}, "Dead letters"), form, filtered(said(wanted), "#/dead-letters"), groups, h("p", {class: "sides"}, total, kept), choice, result(output), list);
    enable();

    function enable() {
        for (const button of buttons) {
            button.disabled = selection.isEmpty;
        }
    }

    /** Each part is shown as soon as it is there: to count may take the server longer than the list. */
    const refresh = () => Promise.all([showList(), showCounts()]);

    async function showList() {
        const told = await found("/dead-letters", {...wanted, newestFirst: true}, asked.after);
        const {head, boxes} = selection.show(told.letters.map((each) => [each.id, each]));
        enable();
        swap(list,
            table("Dead letters", [{text: "Select", element: head, class: "select"}, ...COLUMNS], told.letters.map((each, index) => [boxes[index], ...row(each)]),
                told.next ? "No match so far; the search continues on the next page." : Object.keys(wanted).length ? "No dead letter matches." : "No dead letters. A message stands here when its receiver rejects it, or can no longer get it."),
            pager(asked, told.next, go,
                h("a", {class: "button", href: `/admin/api/dead-letters/export?${new URLSearchParams(wanted)}`, download: "dead-letters.ndjson"}, "Export")));
    }

    /** The total and all groups are of one answer, so that they agree. */
    async function showCounts() {
        const told = await get("/dead-letters/count", {...wanted, by: KINDS.map(([by]) => by), facets: true});
        const dropped = told.dropped ? ` ${count(told.dropped)} were dropped, because there were too many.` : "";
        const number = `${told.partial ? "At least " : ""}${things(told.count, "dead letter")}`;
        total.textContent = `${number} ${!Object.keys(wanted).length ? "in all" : told.count === 1 && !told.partial ? "matches" : "match"}.${dropped}`;
        swap(kept, h("a", {href: "#/dead-letters/bin"}, told.binned === null ? "Bin" : `Bin: ${things(told.binned, "discarded dead letter")}`));
        selection.total = told.partial ? null : told.count;
        for (const [place, [by, heading, field]] of KINDS.entries()) {
            swap(groups.children[place], ...group(told.groups[by], heading, field, asked, changed));
        }
    }

    return {element, refresh, everyMs: 10_000, liveMs: 60_000, hears: ["letters", "job"]};
}

/** A page, the newest first. A search reads page after page until it has enough, or has looked at many. */
async function found(path, filters, after) {
    const letters = [], size = pageSize(PAGE);
    let next = after;
    for (let pages = 0; pages < 10; pages += 1) {
        const told = await get(path, {...filters, after: next, count: size - letters.length});
        letters.push(...told.letters);
        next = told.next;
        if (!next || letters.length >= size) {
            break;
        }
    }
    return {letters, next};
}

function group({by, groups, values, partial}, heading, field, asked, changed) {
    const rows = groups.slice(0, GROUPED).map(({value, like, count: number}) => {
        const wanted = like ?? value; // a likeness is shown as a shape, and filtered by its id
        const isOn = asked[field] === wanted;
        const called = by === "returns" ? cameBack(value) : parts(value || "without a reason", SEPARATORS[by] ?? "/");
        return h("li", {},
            wanted === "" ? called // a filter that is empty is none
                : h("a", {href: changed({[field]: isOn ? "" : wanted, after: ""}), "aria-current": isOn && "true", title: isOn ? "Show all again" : null}, called),
            h("span", {class: "number"}, count(number)));
    });
    const hints = [asked[field] && "without this filter", values > GROUPED && `and ${count(values - GROUPED)} more`, partial && "of the newest ones"].filter(Boolean).join(", ");
    return [h("h2", {}, heading), rows.length ? h("ul", {}, rows) : h("p", {class: "hint"}, "None."), h("p", {class: "hint", hidden: !hints}, hints)];
}

/** How often a message was redriven and failed again. */
function cameBack(times) {
    return times === "0" ? "never redriven" : times === "1" ? "came back once" : `came back ${count(Number(times))} times`;
}

function row(letter) {
    return [
        h("span", {}, h("a", {href: `#/dead-letters/${letter.id}`}, letter.id), letter.returns ? h("span", {class: "mark bad"}, ` came back ${letter.returns}×`) : null,
            letter.edited ? h("span", {class: "mark"}, " edited") : null,
            h("br"), h("span", {class: "hint"}, time(Number(letter.id.split("-")[0])))),
        h("span", {}, parts(letter.errorCode, "."), letter.errorCodeGiven ? h("span", {class: "hint"}, ` given as ${letter.errorCodeGiven}`) : null),
        parts(letter.channel, "/"),
        parts(name(letter), "/"),
        h("span", {class: "data"}, letter.reason),
        data(letter.data),
    ];
}

/** The dead letters that were discarded and can be restored. */
export function bin({query, go, me, again}) {
    const asked = Object.fromEntries(query);
    const wanted = filled(asked);
    const total = h("p", {class: "hint"});
    const output = h("p", {class: "outcome"});
    const list = h("div", {class: "stack letters"});
    const selection = new Selection("dead letter", () => enable());
    const which = () => selection.isAll ? {all: true, ...wanted} : {ids: selection.ids};
    const counted = async () => {
        const onScreen = chosenOf(selection.rows);
        return onScreen.number === selection.size ? onScreen : {number: selection.size, receivers: ""};
    };
    const button = restoring(me.role, which, counted, output, () => {
        selection.clear();
        return again();
    });
    const element = h("div", {class: "stack"}, h("p", {class: "back"}, h("a", {href: "#/dead-letters"}, "All dead letters")), h("h1", {}, "Bin of dead letters"),
        filters(FIELDS, asked, go), filtered(said(wanted), "#/dead-letters/bin"), total, h("div", {class: "actions"}, button, selection.element), result(output), list);
    enable();

    function enable() {
        if (button) {
            button.disabled = selection.isEmpty;
        }
    }

    async function refresh() {
        const told = await get("/dead-letters/bin", {...wanted, after: asked.after, count: pageSize(PAGE)});
        const why = told.letters.length ? await reasons(me) : () => "";
        const inAll = told.kept === null ? "" : `${things(told.kept, "discarded dead letter")} in all. `;  // null: only some channels are the operator's
        total.textContent = `${inAll}Each can be restored for a day after its discard, less if dead letters need the room.`;
        const isWhole = !Object.keys(wanted).length;
        selection.total = isWhole ? told.kept : null;
        const {head, boxes} = selection.show(told.letters.map((each) => [each.id, each]));
        enable();
        swap(list,
            table("Discarded dead letters", [{text: "Select", element: head, class: "select"}, ...COLUMNS, {text: "Discarded", class: "gone"}],
                told.letters.map((each, index) => [boxes[index], ...row(each), discard(each.discarded, why(each))]),
                told.next ? "No match so far; the search continues on the next page." : isWhole ? "The bin is empty. What an operator discards stands here for a day." : "No discarded dead letter matches."),
            pager(asked, told.next, go));
    }

    return {element, refresh, everyMs: 10_000, hears: ["letters", "job"]};
}

/** Why a dead letter was discarded, as the newest entries of the audit tell those who may read it: a function of the dead letter. */
async function reasons({everywhere}) {
    const {entries} = everywhere === null ? {entries: []} : await get("/audit", {what: "discard", outcome: "done", count: 100});
    return ({id, discarded: {job}}) => entries.find((each) => job ? each.about === job : each.details?.ids?.includes?.(id))?.reason ?? "";
}

function discard({at, until, who, job, editedAs}, why) {
    return h("span", {}, `${span(Date.now() - at)} ago by ${who || "an operator"}${why && `: ${why}`}`, job ? [", ", h("a", {href: `#/jobs/${job}`}, "job")] : null,
        editedAs ? [", edited as ", h("a", {href: `#/message/${editedAs}`}, editedAs)] : null, h("br"), h("span", {class: "hint"}, `${span(until - Date.now())} left`));
}

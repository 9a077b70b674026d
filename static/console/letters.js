/**
 * Dead letters: their groups, a list that the server filters, one of them, and redrive and discard of one, of a selection, or of
 * all that match.
 */

import {get, post} from "./api.js";
import {action, may} from "./dialogs.js";
import {data, facts, filters, h, pager, parts, sections, swap, table, topicLink} from "./elements.js";
import {ago, count, things, time} from "./format.js";
import {work} from "./jobs.js";
import {discarded} from "./message.js";

const PAGE = 100;
const FIELDS = [
    ["contains", "Text in the dead letter", "search"], ["code", "Code begins with"], ["channel", "Channel or pattern"],
    ["receiver", "Receiver"], ["since", "Since: 2h, 2026-11-22"],
];
const GROUPED = 8;
const SEPARATORS = {code: ".", likeness: ", "};
const KINDS = ["code", "channel", "receiver", "likeness"];

function filled(asked) {
    return Object.fromEntries([...FIELDS.map(([name]) => name), "like"].filter((name) => asked[name]).map((name) => [name, asked[name]]));
}

export function deadLetters({query, go, me, again, changed}) {
    const asked = Object.fromEntries(query);
    const wanted = filled(asked);
    const form = filters(FIELDS, asked, go);
    const groups = h("div", {class: "cards groups"}, KINDS.map((by) => h("section", {class: "card"}, h("h2", {}, `By ${by}`))));
    const total = h("p", {class: "hint"});
    const output = h("p", {class: "outcome"});
    const list = h("div", {class: "stack"});
    const chosen = new Set();
    const selected = h("span", {class: "hint"});
    const choice = h("div", {class: "actions"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Dead letters"), form, groups, total, choice, output, list);
    choose();

    function choose() {
        selected.textContent = chosen.size ? `${count(chosen.size)} selected` : "Nothing is selected: these apply to all that match.";
    }
    const which = () => chosen.size ? {ids: [...chosen]} : {all: true, ...wanted};
    const buttons = works(me.role, which, output, () => {
        chosen.clear();
        choose();
        return again();
    });
    choice.replaceChildren(...buttons, selected);

    /** Each part is shown as soon as it is there: groups may take the server longer than the list. */
    const refresh = () => Promise.all([showList(), ...KINDS.map(showGroup)]);

    async function showList() {
        const [told, counted] = await Promise.all([found(wanted, asked.after), wanted.contains ? null : get("/dead-letters/count", wanted)]);
        const dropped = counted?.dropped ? ` ${count(counted.dropped)} were dropped, because there were too many.` : "";
        total.textContent = counted === null ? "" : `${things(counted.count, "dead letter")} ${!Object.keys(wanted).length ? "in all" : counted.count === 1 ? "matches" : "match"}.${dropped}`;
        for (const button of buttons) {
            button.disabled = counted?.count === 0 && !chosen.size;
        }
        swap(list,
            table("Dead letters", ["Select", {text: "Dead letter", class: "id"}, "Code", "Channel", "Receiver", "Reason", "Data"],
                told.letters.map((each) => row(each, chosen, choose)), told.next ? "No match so far; the search continues on the next page." : "No dead letter matches."),
            pager(asked, told.next, go,
                h("a", {class: "button", href: `/admin/api/dead-letters/export?${new URLSearchParams(wanted)}`, download: "dead-letters.ndjson"}, "Export")));
    }

    async function showGroup(by, place) {
        const field = by === "likeness" ? "like" : by;
        const {[field]: own, ...others} = wanted; // how many there would be with another choice of this kind
        swap(groups.children[place], ...group(await get("/dead-letters/groups", {by, ...others}), asked, changed));
    }

    return {element, refresh, everyMs: 10_000, liveMs: 60_000, hears: ["letters", "job"]};
}

/** A page, the newest first. A search reads page after page until it has enough, or has looked at many. */
async function found(filters, after) {
    const letters = [];
    let next = after;
    for (let pages = 0; pages < 10; pages += 1) {
        const told = await get("/dead-letters", {...filters, after: next, count: PAGE, newestFirst: true});
        letters.push(...told.letters);
        next = told.next;
        if (!next || letters.length >= PAGE / 2) {
            break;
        }
    }
    return {letters, next};
}

function group({by, groups, values, partial}, asked, changed) {
    const rows = groups.slice(0, GROUPED).map(({value, like, count: number}) => {
        const [field, wanted] = like === undefined ? [by, value] : ["like", like]; // a likeness is shown as a shape, and filtered by its id
        const isOn = asked[field] === wanted;
        return h("li", {},
            h("a", {href: changed({[field]: isOn ? "" : wanted, after: ""}), "aria-current": isOn && "true", title: isOn ? "Show all again" : null}, parts(value, SEPARATORS[by] ?? "/")),
            h("span", {class: "number"}, count(number)));
    });
    const hints = [values > GROUPED && `and ${count(values - GROUPED)} more`, partial && "of the newest ones"].filter(Boolean).join(", ");
    return [h("h2", {}, `By ${by}`), rows.length ? h("ul", {}, rows) : h("p", {class: "hint"}, "None."), h("p", {class: "hint", hidden: !hints}, hints)];
}

function row(letter, chosen, choose) {
    const box = h("input", {type: "checkbox", "aria-label": `Select ${letter.id}`, checked: chosen.has(letter.id), onchange: (event) => {
        chosen[event.target.checked ? "add" : "delete"](letter.id);
        choose();
    }});
    return [
        box,
        h("span", {}, h("a", {href: `#/dead-letters/${letter.id}`}, letter.id), letter.returns ? h("span", {class: "mark bad"}, ` came back ${letter.returns}×`) : null,
            h("br"), h("span", {class: "hint"}, time(Number(letter.id.split("-")[0])))),
        h("span", {}, parts(letter.errorCode, "."), letter.errorCodeGiven ? h("span", {class: "hint"}, ` given as ${letter.errorCodeGiven}`) : null),
        parts(letter.channel, "/"),
        parts(name(letter), "/"),
        letter.reason,
        data(letter.data),
    ];
}

function name(letter) {
    return letter.receiver.replace(/^\/node\/[^/]+\//, "");
}

/** Buttons that redrive or discard what `which` says: ids, or a filter. */
function works(role, which, output, again) {
    const counted = async (verb) => (await post(`/dead-letters/${verb}`, {...which(), dryRun: true})).count;
    const make = (verb, text, needed, effect, more = {}, kind = "") => may(role, needed) && action({
        name: text,
        question: async () => {
            const number = await counted(verb);
            if (number === 0) {
                output.textContent = "No dead letter matches.";
                return null;
            }
            return {title: text, effect: effect(things(number, "dead letter")), button: `${text}: ${count(number)}`, isFinal: needed === "destroy",
                thing: verb === "redrive" && !which().ids ? "dead letters" : ""};
        },
        work: (reason, rate) => {
            const body = {...which(), ...more, ...(reason ? {reason} : {}), ...(rate ? {rate} : {})};
            return body.ids ? few(verb, body) : work({what: verb, ...body}, output);
        },
        output,
        again,
        kind,
    });
    return [
        make("redrive", "Redrive", "operate", (number) => `Sends ${number} to ${which().ids ? "their" : "the"} receivers again. Those that fail again become new dead letters and are not part of this.`),
        make("redrive", "Redrive to channel", "operate", (number) => `Publishes ${number} to their channels again: all current subscribers get them.`, {toChannel: true}),
        make("discard", "Discard", "destroy", (number) => `Discards ${number}.`, {}, "danger"),
    ].filter(Boolean);
}

/** Does it to those that are selected, at once, and says what came of it. All that match are the work of a job. */
async function few(verb, body) {
    const field = verb === "redrive" ? "redriven" : "discarded";
    const told = await post(`/dead-letters/${verb}`, body);
    const left = told.undoneCount ? ` ${things(told.undoneCount, "dead letter")} stayed: ${told.undone[0].message}` : "";
    return `${things(told[field], "dead letter")} ${field}.${left}`;
}

/** What became of a dead letter that has gone. */
async function end(id, me) {
    const gone = await get(`/dead-letters/${encodeURIComponent(id)}/end`).catch((error) => {
        if (error.status !== 404) {
            throw error;
        }
        return null;
    });
    if (gone === null) {
        return h("p", {}, "There is no such dead letter, or it has been removed, and its outcome is not recorded.");
    }
    const message = gone.message ? [" Message ", h("a", {href: `#/message/${encodeURIComponent(gone.message)}`}, gone.message)] : null;
    if (gone.end === "discarded") {
        return h("p", {}, "It was ", discarded(gone, me), ".", message);
    }
    return h("p", {}, `It was redriven at ${time(gone.at)} as `, h("a", {href: `#/message/${gone.redrivenAs}`}, `message ${gone.redrivenAs}`), ". ",
        gone.job ? h("a", {href: `#/jobs/${gone.job}`}, `Job ${gone.job}`) : me.everywhere === null ? null : h("a", {href: `#/audit?contains=${id}`}, "Who did it, in the audit"), message);
}

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

export function deadLetter({words: [id], me, again}) {
    let shown = null;
    const body = h("div", {class: "stack"});
    const output = h("p", {class: "outcome"});
    const choice = h("div", {class: "actions"});
    const element = h("div", {class: "stack"}, h("p", {}, h("a", {href: "#/dead-letters"}, "All dead letters")),
        h("h1", {}, `Dead letter ${id}`), choice, output, body);

    async function refresh() {
        let letter;
        try {
            letter = await get(`/dead-letters/${encodeURIComponent(id)}`);
        } catch (error) {
            if (error.status !== 404) {
                throw error;
            }
            const told = await end(id, me);
            swap(body, shown === null ? "" : h("section", {class: "card"}, facts(reasons(shown))), told);
            choice.hidden = true;
            return;
        }
        shown = letter;
        if (!choice.hasChildNodes()) {
            choice.replaceChildren(...works(letter.may, () => ({ids: [id]}), output, again));
        }
        swap(body,
            h("section", {class: "card"}, facts([
                ["Made", ago(Number(id.split("-")[0]))],
                ["Code", letter.errorCode],
                ["Code as given", letter.errorCodeGiven],
                ["Reason", letter.reason],
                ["Attempts", count(letter.attempts)],
                ["Came back", letter.returns && h("span", {}, `${things(letter.returns, "time")}, at last as the redrive of `, h("a", {href: `#/dead-letters/${letter.redriveOf}`}, letter.redriveOf))],
                ["Receiver", h("a", {href: `#/receivers/${name(letter)}`}, name(letter))],
                ["Channel", topicLink(letter.channel)],
                ["To", letter.to],
                ["Message", h("a", {href: `#/message/${letter.persistent ? encodeURIComponent(letter.message) : letter.id}`}, letter.message)],
                [letter.returns ? "Redriven" : "Published", ago(Number(letter.rcvTimestamp) / 1e6)],
                ["Sender", letter.sender || "the server, or a back end"],
                ["Persistent", letter.persistent ? "yes" : "no"],
            ])),
            ...sections([["Data", letter.data], ["Options of the publish", letter.qos], ["Other ext", letter.ext]]));
    }

    return {element, refresh, everyMs: 10_000};
}

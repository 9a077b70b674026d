/**
 * A prompt for the commands `__cmd:`, with completion of properties, sessions and channels, and the commands that were entered before.
 */

import {get, post} from "./api.js";
import {ask, may} from "./dialogs.js";
import {h, keep, result, say, swap, table} from "./elements.js";
import {stringify} from "./exact_numbers.js";
import {time} from "./format.js";

const PREFIX = "__cmd:";
const KEPT = 50;
const OFFERED = 12;
const ROOTS = [["?", "the server"], ["client/", "a subject: client/joe/?, or a session: client/joe/1/?"], ["topic/", "a topic: topic/kitchen/orders/?"]];

/** Which commands a path has: "client/joe/1/" has those of sessions. */
function levelOf(path) {
    const words = path.split("/").filter(Boolean);
    const from = words[0] === "node" ? 2 : 0;
    const rest = words.slice(from);
    if (rest.length === 0) {
        return "node";
    }
    if (rest[0] === "topic") {
        return "topic";
    }
    return rest.length > 2 ? "session" : "subject";
}

/** What the text may become: lists of text and meaning. */
async function completions(text, commands, role) {
    if (text === "") {
        return []; // the arrows show earlier commands
    }
    const [path, property] = [text.split("?", 1)[0], text.includes("?") ? text.slice(text.indexOf("?") + 1) : null];
    if (property !== null) {
        const level = levelOf(path);
        return commands
            .filter((each) => each.level === level && may(role, each.role) && !property.includes("=") && matches(each.name, property))
            .map((each) => [`${path}?${each.name}${each.needsValue ? "=" : ""}`, meaning(each)]);
    }
    if (path.startsWith("client/")) {
        const {sessions} = await get("/sessions", {contains: path.replace(/\/$/, ""), count: OFFERED});
        return sessions.map((each) => [`${each.name}/?`, each.conditions.join(", ")]);
    }
    if (path.startsWith("topic/")) {
        const below = path.slice("topic".length, path.lastIndexOf("/"));
        const {prefixes} = await get("/prefixes", {below, count: 1000});
        return prefixes.filter((each) => `topic${each.prefix}`.startsWith(path))
            .flatMap((each) => [
                ...each.topics > each.deeper ? [[`topic${each.prefix}/?`, "topic"]] : [],
                ...each.deeper ? [[`topic${each.prefix}/`, `${each.deeper} below`]] : [],
            ]);
    }
    return ROOTS.filter(([root]) => root.startsWith(path));
}

function matches(name, part) {
    return name.toLowerCase().includes(part.toLowerCase());
}

function meaning(each) {
    return each.takes ? `${each.meaning} Takes ${each.takes}.` : each.meaning;
}

/** The row of the table that the text names, and whether it changes something. */
function rowOf(text, commands) {
    const [path, ...rest] = text.split("?");
    const [name, ...value] = rest.join("?").split("=");
    const row = commands.find((each) => each.level === levelOf(path) && each.name === name);
    return {row, changes: row !== undefined && (row.access === "x" || (row.writeRole !== null && value.length > 0))};
}

/** The commands of this page's life, the newest last. */
const past = [];

export function commands({query, me, note}) {
    let known = [];
    let offered = [];
    let isStale = false; // what is offered is for an earlier text
    let offering = Promise.resolve();
    let place = past.length;
    let asked = 0;
    let loading = null;
    let isRunning = false;
    const options = h("ul", {id: "completions", role: "listbox", "aria-label": "Completions", class: "completions", hidden: true});
    const field = h("input", {
        id: "command", value: (query.get("command") ?? "").replace(PREFIX, ""), autocomplete: "off", autocapitalize: "off", spellcheck: "false",
        role: "combobox", "aria-expanded": "false", "aria-controls": "completions", "aria-autocomplete": "list",
        oninput: () => { isStale = true; offering = offer(); }, onkeydown: onKey, onblur: () => setTimeout(close, 200),
    });
    const hint = h("p", {class: "hint"}, "Begin with ?, client/ or topic/. Tab takes a completion, ↑ and ↓ choose one; in an empty field they show earlier commands.");
    const log = h("ol", {class: "log", "aria-label": "Results, the newest first"});
    const form = h("form", {class: "prompt", onsubmit: (event) => {
        event.preventDefault();
        if (!isRunning) { // a second Enter does not run it twice
            isRunning = true;
            run().finally(() => { isRunning = false; });
        }
    }}, h("label", {for: "command"}, PREFIX), h("div", {class: "completing"}, field, options), h("button", {class: "primary"}, "Run"));
    const list = h("details", {class: "card"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Commands"), form, hint, log, list);

    function close() {
        asked += 1;
        isStale = false;
        offered = [];
        options.hidden = true;
        field.setAttribute("aria-expanded", "false");
        field.removeAttribute("aria-activedescendant");
    }

    async function offer() {
        const mine = asked += 1, text = field.value;
        const found = await completions(text, known, me.role).catch(() => []);
        if (mine !== asked) {
            return; // a later key has asked for others
        }
        isStale = false;
        offered = found.filter(([completion]) => completion !== text).slice(0, OFFERED);
        swap(options, ...offered.map(([completion, told], index) => h("li", {
            id: `completion-${index}`, role: "option", "aria-selected": "false",
            onmousedown: (event) => {
                event.preventDefault();
                take(index);
            },
        }, h("code", {}, completion), " ", h("span", {class: "hint"}, told))));
        options.hidden = offered.length === 0;
        field.setAttribute("aria-expanded", String(offered.length > 0));
        field.removeAttribute("aria-activedescendant");
    }

    function chosen() {
        return [...options.children].findIndex((each) => each.getAttribute("aria-selected") === "true");
    }

    function choose(index) {
        [...options.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === index)));
        field.setAttribute("aria-activedescendant", `completion-${index}`);
        options.children[index].scrollIntoView({block: "nearest"});
    }

    function take(index) {
        [field.value] = offered[index];
        offering = offer();
    }

    async function takeNewest() {
        await offering;
        if (offered.length > 0) {
            take(0);
        }
    }

    function onKey(event) {
        if (event.key === "Tab" && !event.shiftKey && isStale) {
            event.preventDefault();
            takeNewest();
            return;
        }
        if (offered.length > 0) {
            const now = chosen();
            if (event.key === "ArrowDown" || event.key === "ArrowUp") {
                const step = event.key === "ArrowDown" ? 1 : -1;
                choose(now < 0 ? (step > 0 ? 0 : offered.length - 1) : (now + step + offered.length) % offered.length);
            } else if (event.key === "Tab" && !event.shiftKey) {
                take(Math.max(now, 0));
            } else if (event.key === "Enter" && now >= 0) {
                take(now);
            } else if (event.key === "Escape") {
                close();
            } else {
                return;
            }
            event.preventDefault();
        } else if ((event.key === "ArrowUp" && place > 0) || (event.key === "ArrowDown" && place < past.length)) {
            place += event.key === "ArrowUp" ? -1 : 1;
            field.value = past[place] ?? "";
            event.preventDefault();
        }
    }

    async function run() {
        const text = field.value.trim().replace(PREFIX, "");
        close();
        if (text === "") {
            return;
        }
        const command = PREFIX + text;
        let shown, isChange = false;
        try {
            await refresh(); // without the list, it is not known what changes something
            const {row, changes} = rowOf(text, known);
            if (!element.isConnected) {
                return; // the operator has left the view
            }
            if (changes && await ask({title: command, effect: meaning(row), button: "Run", isFinal: row.role === "destroy", hasReason: false}) === null) {
                return;
            }
            isChange = changes;
            if (past.at(-1) !== text) {
                past.push(text);
            }
            place = past.length;
            note({command: text});
            const {result: told} = await post("/commands", {command});
            shown = h("pre", {}, typeof told === "string" ? told || "(empty)" : stringify(told, 2));
        } catch (error) {
            shown = h("p", {class: "trouble"}, error.message);
        }
        log.prepend(h("li", {class: "card"}, h("p", {}, h("code", {}, command), " ", h("span", {class: "hint"}, time(Date.now()))), shown));
        while (log.children.length > KEPT) {
            log.lastChild.remove();
        }
        say(shown.textContent.slice(0, 200));
        field.select();
        if (isChange && !element.isConnected) {
            const output = h("div", {class: "outcome", "data-of": command}, shown);
            result(output);
            keep(output);
        }
    }

    function refresh() {
        loading ??= load().catch((error) => {
            loading = null; // the next refresh tries again
            throw error;
        });
        return loading;
    }

    async function load() {
        known = (await get("/commands")).commands;
        const rows = known.filter((each) => may(me.role, each.role)).map((each) => [
            h("button", {type: "button", class: "plain", onclick: () => fill(each)}, h("code", {}, each.path.replace(PREFIX, "") + each.name)),
            {r: "read", rw: "read, write", x: "operation"}[each.access],
            meaning(each),
            each.writeRole ? `${each.role}; to write ${each.writeRole}` : each.role,
        ]);
        swap(list, h("summary", {}, h("h2", {}, `All ${rows.length} commands that you may run`)),
            table("Commands", ["Command", "Access", "Meaning", "Role"], rows));
        field.focus();
    }

    function fill(each) {
        field.value = each.path.replace(PREFIX, "") + each.name;
        field.focus();
        window.scrollTo({top: 0});
    }

    return {element, refresh};
}

/**
 * The operator's page: signs in, and shows the view that the address names: #/receivers?state=POLLING.
 */

import {Refused, Unreachable, get, post} from "./api.js";
import {audit} from "./audit.js";
import {showBadges} from "./badges.js";
import {commands} from "./commands.js";
import {h, keep, result, say} from "./elements.js";
import {Feed} from "./feed.js";
import {sentence, time, zone} from "./format.js";
import {group} from "./groups.js";
import {job, jobs} from "./jobs.js";
import {deadLetter} from "./letter.js";
import {bin, deadLetters} from "./letters.js";
import {findMessage, message} from "./message.js";
import {overview} from "./overview.js";
import {receiver, receivers} from "./receivers.js";
import {requests} from "./requests.js";
import {showSaved} from "./saved.js";
import {scheduled} from "./scheduled.js";
import {timeline} from "./timeline.js";
import {topic, topics} from "./topics.js";

/**
 * Address, key, name in the navigation, and the function that shows it. The groups of the address are its arguments. `under` is the
 * view of the navigation to which it belongs, if its address does not begin with that.
 */
const VIEWS = [
    {address: /^\/$/, key: "o", name: "Overview", href: "#/", show: overview, isOfServer: true, isFirst: true},
    {address: /^\/timeline$/, name: "Timeline", show: timeline, isOfServer: true, under: "/"},
    {address: /^\/receivers$/, key: "r", name: "Receivers", href: "#/receivers", show: receivers, isFirst: true},
    {address: /^\/receivers\/(.+)$/, name: "Receiver", show: receiver},
    {address: /^\/dead-letters$/, key: "d", name: "Dead letters", href: "#/dead-letters", show: deadLetters, isFirst: true},
    {address: /^\/dead-letters\/bin$/, name: "Bin of dead letters", show: bin},
    {address: /^\/dead-letters\/([0-9]+-[0-9]+)$/, name: "Dead letter", show: deadLetter},
    {address: /^\/message$/, key: "m", name: "Message", href: "#/message", show: findMessage},
    {address: /^\/message\/([^/]+)$/, name: "Message", show: message},
    {address: /^\/scheduled$/, key: "s", name: "Scheduled", href: "#/scheduled", show: scheduled},
    {address: /^\/topics$/, key: "t", name: "Topics", href: "#/topics", show: topics},
    {address: /^\/topics\/(.+)$/, name: "Topic", show: topic},
    {address: /^\/groups\/([^/]+)\/(.+)$/, name: "Group", show: group, under: "/receivers"},
    {address: /^\/requests$/, key: "q", name: "Requests", href: "#/requests", show: requests},
    {address: /^\/jobs$/, key: "j", name: "Jobs", href: "#/jobs", show: jobs},
    {address: /^\/jobs\/([0-9]+-[0-9]+)$/, name: "Job", show: job},
    {address: /^\/audit$/, key: "a", name: "Audit", href: "#/audit", show: audit, isOfServer: true},
    {address: /^\/commands$/, key: "c", name: "Commands", href: "#/commands", show: commands},
];

/** A view rests so many times as long as its refresh has taken, and no longer than this. */
const COST = 20;
const LONGEST_REST_MS = 30_000;

/** How often the page asks for what its badges say, while the live feed does not bring it. */
const BADGES_MS = 15_000;

/** How often the page sees whether the server is there, and how long it waits for that: the loss is on screen within twice that. */
const PULSE_MS = 1400;

/** Notices within this time lead to one refresh. */
const GATHERED_MS = 500;

const main = document.querySelector("#view");
const nav = document.querySelector("#nav");
const trouble = document.querySelector("#trouble");
/** What came of actions whose view had gone by then. */
const late = document.querySelector("#late");
/** Who has signed in last. */
let lastWho = "";
let me = null;
let shown = null;
let timer = 0;
let looking = 0;
let noticed = 0;
/** Since when the server does not answer, as performance.now(); null while it does. */
let lostAt = null;
/** What keeps the view from being shown. */
let warning = "";
/** The finding about a store that cannot be used; null while it can. */
let storeOut = null;
const feed = new Feed({
    overview: (told) => {
        badges(told);
        return shown?.show?.(told);
    },
    notice: ({kind}) => {
        if (shown?.hears?.includes(kind) && noticed === 0) {
            noticed = setTimeout(() => {
                noticed = 0;
                return shown && me ? refresh(shown) : undefined;
            }, GATHERED_MS);
        }
    },
    changed: () => {
        document.body.dataset.live = String(feed.isLive);
        return shown && me ? refresh(shown) : undefined;
    },
});

function place() {
    const address = location.hash.slice(1) || "/";
    const end = `${address}?`.indexOf("?"); // the first one: others are part of what is asked, as in command=client/joe/1/?qos
    return {path: address.slice(0, end), query: new URLSearchParams(address.slice(end + 1))};
}

/** Whether the navigation has the view: an operator of some channels does not see what is of the server as a whole. */
function isOpen(view) {
    return view.href && (me?.everywhere !== null || !view.isOfServer);
}

function viewOf(path) {
    return VIEWS.find((each) => each.address.test(path));
}

/** The arguments of a view in its address; null if they are wrongly encoded, such as a % alone. */
function wordsOf(view, path) {
    try {
        return view.address.exec(path).slice(1).map((word) => decodeURIComponent(word));
    } catch {
        return null;
    }
}

/**
 * Shows the view of the address. A view is a function that returns `{element, refresh, everyMs, close}`; and, for the live feed,
 * `hears`, the kinds of notices that concern it, `show`, which takes an overview, and `liveMs` in place of `everyMs`.
 */
async function route({focus = false} = {}) {
    if (me === null) {
        return;
    }
    const {path, query} = place();
    if (path === "/" && me.everywhere === null) {
        location.replace("#/receivers"); // the overview is of the server as a whole
        return;
    }
    const view = viewOf(path);
    const words = view && wordsOf(view, path);
    close();
    openMenu(false);
    tellTrouble();
    for (const link of nav.querySelectorAll("a:not(.badge)")) {
        const at = view?.under ?? path;
        const isHere = at.startsWith(link.getAttribute("href").slice(1)) && (link.hash !== "#/" || at === "/");
        if (isHere) {
            link.setAttribute("aria-current", "page");
        } else {
            link.removeAttribute("aria-current");
        }
    }
    if (!words) {
        main.replaceChildren(h("h1", {}, "There is no such view"), h("p", {}, h("a", {href: "#/"}, "To the overview")));
        return;
    }
    document.title = `${view.name} – Crewel`;
    shown = view.show({me, query, words, go, note, changed, badges, again, has: (href) => viewOf(href.split("?")[0]) !== undefined});
    main.replaceChildren(shown.element);
    if (focus) {
        main.focus({preventScroll: true});
    }
    await refresh(shown);
}

/** Shows the view again, whichever is there when an action has ended; after the end of the sign-in there is none. */
async function again() {
    if (shown !== null) {
        await Promise.all([refresh(shown), lookAround(true)]);
    }
}

function close() {
    clearTimeout(timer);
    shown?.close?.();
    shown = null;
}

/** Lets a view show what is new, now and again while it is on screen. */
async function refresh(view) {
    clearTimeout(timer);
    const began = performance.now();
    try {
        await view.refresh();
        view.isKnown = true;
        view.element.classList.remove("unknown");
        if (isNews(began)) {
            lostAt = null;
            warn("");
        }
    } catch (error) {
        if (me === null) {
            return; // the form to sign in says why
        }
        if (error instanceof Unreachable) {
            lose();
        } else if (isNews(began)) {
            warn(cause(error));
            view.element.classList.toggle("unknown", !view.isKnown); // nothing of it is known: it has no empty frames
        }
    }
    if (view === shown && me !== null && view.everyMs) {
        clearTimeout(timer);
        // What takes the server long is asked for less often.
        const restMs = Math.min(COST * (performance.now() - began), LONGEST_REST_MS);
        const pauseMs = Math.max(feed.isLive && view.liveMs || view.everyMs, restMs);
        timer = setTimeout(() => document.hidden ? undefined : refresh(view), pauseMs);
    }
}

/** A sentence about why a view could not be refreshed. What is neither a refusal nor the network is a fault of the page. */
function cause(error) {
    return error instanceof Refused ? sentence(error.message) : `This page has a fault, please report it: ${error.message}`;
}

function warn(text) {
    warning = text;
    tellTrouble();
}

/** One line above each view: what keeps it from being shown, else that the store is out. What to do is in the overview. */
function tellTrouble() {
    const text = warning || (storeOut && me !== null ? `${storeOut.title} since ${time(storeOut.since)}: what the store knows is missing here.` : "");
    const told = h("p", {}, text, text && storeOut && me?.everywhere !== null ? [" ", h("a", {href: "#/"}, "What to do")] : []);
    if (trouble.textContent !== told.textContent) { // else it would be read aloud again and again
        trouble.replaceChildren(...told.childNodes);
    }
    trouble.hidden = text === "" || (warning === "" && place().path === "/"); // which says it first
}

/** Whether the answer to what was asked at that time tells how the server is now: one that was on its way when the network was lost does not. */
function isNews(began) {
    return lostAt === null || began > lostAt;
}

/** Says that the server cannot be reached, until it answers to what is asked from now on. */
function lose() {
    lostAt ??= performance.now();
    warn(`${new Unreachable().message} This page tries again.`);
}

/** Asks the server for next to nothing, now and again: a view that rests would show its loss late. */
async function pulse() {
    if (!document.hidden && me !== null) {
        const began = performance.now();
        const answers = await fetch("/admin/page/icon.svg", {method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(PULSE_MS)}).then(() => true, () => false);
        if (!answers && me !== null) {
            lose();
        } else if (answers && lostAt !== null && isNews(began) && shown !== null) {
            refresh(shown);
        }
    }
    setTimeout(pulse, PULSE_MS);
}

/** Shows beside the views, and above them, what an overview says. */
function badges(told) {
    showBadges(nav, told);
    storeOut = told.findings.find(({key}) => key === "not-ready-store") ?? null;
    tellTrouble();
}

/** Asks for what the badges say, now and again, unless the live feed brings it. */
async function lookAround(isNow = false) {
    clearTimeout(looking);
    if (!document.hidden && me?.everywhere && (isNow || !feed.isLive)) {
        await get("/overview", {after: Date.now()}).then((told) => me && badges(told), () => {});
    }
    looking = setTimeout(() => lookAround(), BADGES_MS);
}

/** The address with other values in its query: what was left out stays, what is empty goes. */
function changed(changes) {
    const {path, query} = place();
    for (const [name, value] of Object.entries(changes)) {
        if (value === "" || value === null) {
            query.delete(name);
        } else {
            query.set(name, value);
        }
    }
    const search = query.toString();
    return `#${path}${search && "?"}${search}`;
}

/** Changes the query of the address, and shows the view again. */
function go(changes) {
    location.hash = changed(changes);
}

/** Changes the query of the address for those who copy it; the view stays as it is. */
function note(changes) {
    history.replaceState(null, "", changed(changes));
}

// Signing in

/** The code of a link that signs in; null in the address of a view, whose query may have a `code` too. */
function codeOfLink() {
    return location.hash.startsWith("#code=") ? new URLSearchParams(location.hash.slice(1)).get("code") : null;
}

async function begin() {
    const code = codeOfLink();
    if (code !== null) {
        history.replaceState(null, "", "#/"); // before anything else can see it
        try {
            await post("/sign-in", {code});
        } catch (error) {
            signIn(error.message);
            return;
        }
    }
    try {
        enter(await get("/me"));
    } catch (error) {
        signIn(error.status === 401 ? "" : error.message);
    }
}

function enter(operator) {
    if (operator.who !== lastWho) {
        late.replaceChildren(); // another operator may have no right to see what it names
    }
    lastWho = operator.who;
    me = operator;
    nav.replaceChildren(...VIEWS.filter(isOpen).map((view) =>
        h("a", {href: view.href, title: `Key: g ${view.key}`, class: view.isFirst ? "first" : null}, view.name)));
    showTools(true);
    const who = document.querySelector("#who");
    who.replaceChildren(
        h("span", {class: "node", title: "The server that answers"}, me.node),
        h("span", {class: "zone", title: "The zone of all times on this page"}, zone),
        h("span", {title: me.channels.map(({role, patterns}) => `${role}: ${patterns.join(", ")}`).join("; ")},
            me.who, h("span", {class: "role"}, `, role ${me.role}${me.channels.length ? " on some channels" : ""}`)),
        h("button", {type: "button", class: "menu", "aria-controls": "nav", "aria-expanded": "false", onclick: () => openMenu(!nav.classList.contains("open"))}, "Views"),
        h("button", {type: "button", onclick: signOut}, "Sign out"),
    );
    if (me.everywhere !== null) {
        feed.start();
        lookAround();
    }
    route();
}

/** Shows all views in the navigation of a telephone, which else has the first ones. */
function openMenu(isOpened) {
    nav.classList.toggle("open", isOpened);
    document.querySelector(".menu")?.setAttribute("aria-expanded", String(isOpened));
}

/** Shows or hides what is for an operator who has signed in. */
function showTools(isSignedIn) {
    for (const each of document.querySelectorAll("#nav, #who, #saved, #keys")) {
        each.hidden = !isSignedIn;
    }
}

async function signOut() {
    try {
        await post("/sign-out");
        late.replaceChildren();
        signIn("");
    } catch (error) {
        const output = h("p", {class: "outcome trouble", "data-of": "The sign-out is not complete"}, error.message);
        result(output);
        keep(output); // a warning would go with the next refresh
    }
}

function signIn(why) {
    me = null;
    feed.stop();
    close();
    warn("");
    document.title = "Sign in – Crewel";
    showTools(false);
    if (why) {
        late.append(...main.querySelectorAll(".result")); // which the operator may not have read
    }
    const said = h("p", {class: "trouble", role: "alert"}, sentence(why));
    const field = h("input", {id: "token", type: "password", autocomplete: "current-password", required: true});
    const form = h("form", {class: "card join"},
        h("h1", {}, "Sign in"),
        h("p", {class: "field"}, h("label", {for: "token"}, "Token"), field,
            h("span", {class: "hint"}, "The admin token, or a token with the claim of an operator.")),
        said,
        h("button", {class: "primary"}, "Sign in"),
        h("p", {class: "hint"}, "To sign in without a token: ", h("code", {}, "crewel console"), " prints a link that works once."),
    );
    form.addEventListener("submit", async (event) => {
        event.preventDefault();
        try {
            await post("/sign-in", {token: field.value.trim()});
            enter(await get("/me"));
        } catch (error) {
            said.textContent = sentence(error.message);
            field.select();
        }
    });
    main.replaceChildren(form);
    field.focus();
}

// Keys

let leader = false;

function onKey(event) {
    if (me === null || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) {
        return;
    }
    const wasLeader = leader;
    leader = event.key === "g";
    const view = wasLeader && VIEWS.find((each) => isOpen(each) && each.key === event.key);
    if (view) {
        location.hash = view.href;
    } else if (event.key === "/") {
        event.preventDefault();
        if (!main.querySelector("input[type=search]")) { // a view without a list: messages are searched
            history.pushState(null, "", "#/message");
            route();
        }
        const search = main.querySelector("input[type=search]");
        search.closest("details")?.setAttribute("open", "");
        search.focus();
    } else if (event.key === "s") {
        showSaved();
    } else if (event.key === "?") {
        showKeys();
    }
}

function showKeys() {
    const rows = [...VIEWS.filter(isOpen).map((view) => [`g ${view.key}`, view.name]), ["/", "Search"], ["s", "Saved views"], ["?", "This list"], ["Esc", "Close"]];
    const dialog = h("dialog", {"aria-label": "Keys"},
        h("h2", {}, "Keys"),
        h("dl", {class: "facts"}, rows.flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
        h("form", {method: "dialog"}, h("button", {}, "Close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}

document.querySelector("#zone").textContent = `Times in ${zone}.`;
document.querySelector("#keys").addEventListener("click", showKeys);
document.querySelector("#saved").addEventListener("click", showSaved);
window.addEventListener("offline", () => {
    if (me !== null) {
        lose();
    }
});
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
        feed.stop(); // a browser has few connections to one server, and this page may be open several times
    } else if (me !== null) {
        if (me.everywhere !== null) {
            feed.start();
        }
        if (shown !== null) {
            refresh(shown);
        }
    }
});
document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is that of the view
    main.focus();
});
window.addEventListener("hashchange", () => codeOfLink() === null ? route({focus: true}).then(() => say(document.title)) : begin());
window.addEventListener("signedout", () => me === null ? undefined : signIn("Your sign-in has ended."));
begin();
pulse();

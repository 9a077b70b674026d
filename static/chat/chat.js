/**
 * The chat page: what is pressed and typed goes to the connection, what the connection tells is shown.
 */
import {BreakPanel} from "./break.js";
import {Connection} from "./connection.js";
import {setText} from "./elements.js";
import {Log} from "./log.js";
import {parsePhrase} from "./phrase.js";

const SAVED = "crewel.chat";
const TITLE = document.title;

const STATES = {
    idle: "Not joined",
    joining: "Connecting…",
    online: "Connected",
    lost: "Connection lost, trying again…",
    offline: "Offline, as you asked",
};

/** What the button beside it does. */
const OFFLINE_HINTS = {
    cut: "Cuts the connection without notifying the server. Missed messages arrive when you go online again.",
    mend: "Connects again. If the server still has the session, missed messages arrive; then the page sends your waiting messages.",
};

const ACKNOWLEDGE_HINTS = {
    free: "If you clear this, the server sends the same messages again and again, with growing pauses.",
    settled: "Since you opened “Break it”, the page acknowledges each message separately, and this box has no effect.",
};

const page = Object.fromEntries(
    [...document.querySelectorAll("[id]")].map((element) => [element.id, element]),
);
const log = new Log(page.log);
const connection = new Connection(bayeuxUrl(), {
    joined: showJoined,
    left: showLeft,
    state: showState,
    heard: (message) => breaking.heard(message, connection.person?.name),
    members: showMembers,
    figures: showFigures,
    notice: (text) => log.notice(text),
    refused: keepRefused,
    session: showSession,
});
const breaking = new BreakPanel(page, log, () => connection.settle());
/** Lines that the server did not take, {typed, key}, until they are in the input; the one that is there, or null, with `to`, who was chosen. */
const refused = [];
let draft = null;

/** The server's address: /cometd of this origin, or the path in ?cometd= for another bayeux.path. */
function bayeuxUrl() {
    const path = new URLSearchParams(location.search).get("cometd") ?? "/cometd";
    const url = new URL(path, location.origin);
    return url.origin === location.origin ? url.origin + url.pathname : `${location.origin}/cometd`;
}

function join(person, resumed) {
    page.trouble.textContent = "";
    page.joinButton.disabled = true;
    page.acknowledge.checked = true;
    connection.join(person, resumed);
}

/** A line was not taken: says so, and keeps it for another try. */
function keepRefused({chat, peer}, key, reason) {
    const typed = peer === undefined ? chat : `${peer}::${chat}`;
    refused.push({typed, key});
    log.notice(`${reason}. Kept for another try: ${typed}`);
    showDraft();
}

/** Puts the next refused line into the input, unless something stands there. */
function showDraft() {
    if (page.phrase.value === "" && refused.length > 0) {
        draft = {...refused.shift(), to: page.to.value};
        page.to.value = "";
        page.phrase.value = draft.typed;
        page.phrase.placeholder = placeholder();
    }
}

/** Returns the key of the line in the input if it was refused and is as it was, else null; empties the input. The person chosen before is chosen again. */
function takeDraft() {
    const key = draft?.typed === page.phrase.value ? draft.key : null;
    page.to.value ||= draft?.to ?? "";
    page.phrase.placeholder = placeholder();
    draft = null;
    page.phrase.value = "";
    return key;
}

function showJoined() {
    const {name, room, reliable} = connection.person;
    const isNew = page.talk.hidden;
    document.body.dataset.joined = "";
    page.join.hidden = true;
    page.talk.hidden = false;
    page.panel.hidden = false;
    page.joinButton.disabled = false;
    page.self.textContent = name;
    page.acknowledgeBox.hidden = !reliable;
    breaking.joined(connection.person);
    showRoom(room);
    if (isNew) {
        page.phrase.focus();
    }
}

/** Shows what the server has granted. Messages that are settled one by one are not waiting for an acknowledgement. */
function showSession(session) {
    page.acknowledge.disabled = session.isSettling;
    page.acknowledgeHint.textContent = ACKNOWLEDGE_HINTS[session.isSettling ? "settled" : "free"];
    if (session.isSettling) {
        page.acknowledge.checked = true;
        connection.acknowledging = true;
    }
    breaking.session(session);
}

function showRoom(room) {
    page.roomTitle.textContent = room;
    document.title = `${room} · ${TITLE}`;
    page.otherRoom.value = "";
}

function showLeft(reason) {
    delete document.body.dataset.joined;
    document.title = TITLE;
    page.join.hidden = false;
    page.talk.hidden = true;
    page.panel.hidden = true;
    page.joinButton.disabled = false;
    page.trouble.textContent = reason;
    log.clear();
    breaking.left();
    refused.length = 0;
    takeDraft();
    page.to.value = "";
    showMembers([]);
    showState("idle");
    page.name.focus();
}

function showState(state, detail = {}) {
    setText(page.state, STATES[state]);
    page.state.dataset.state = state;
    page.offline.textContent = state === "offline" ? "Go online" : "Go offline";
    page.offlineHint.textContent = OFFLINE_HINTS[state === "offline" ? "mend" : "cut"];
    page.offline.disabled = state === "joining" || state === "idle";
    page.roomButton.disabled = state !== "online";
    page.transportNow.textContent = detail.transport || "–";
    showOffered(detail.offered ?? []);
    setText(page.hint, hint(state, detail));
    if (page.talk.hidden && state === "lost" && detail.error) {
        setText(page.trouble, `The server replied ${detail.error}. Trying again…`);
    }
    markOffered(detail.offered ?? []);
}

/** Returns the sentence under the composer: what a person should know about this state. */
function hint(state, {waiting = 0, crowded = false, error = ""}) {
    const sentences = [];
    if (state === "offline") {
        sentences.push("By default, the server keeps your session and the messages that you miss for at least ten seconds (bayeux.max_interval_ms).");
    }
    if (state === "lost" && !navigator.onLine) {
        sentences.push("This device is offline.");
    }
    if (state === "lost" && error) {
        sentences.push(`The server replied ${error}.`);
    }
    if (state === "online" && crowded) {
        sentences.push("Another tab of this browser holds the long poll, so this one asks every few seconds.");
    }
    if (waiting > 0) {
        sentences.push(`${waiting} of your messages ${waiting === 1 ? "waits" : "wait"} to be sent.`);
    }
    return sentences.join(" ");
}

/** Lists the transports, none of which is broken at its hyphen. */
function showOffered(offered) {
    const names = offered.map((name) => {
        const element = document.createElement("span");
        element.textContent = name;
        return element;
    });
    page.offered.replaceChildren(...names.flatMap((name, at) => (at === 0 ? [name] : [", ", name])));
    page.offered.append(names.length === 0 ? "–" : "");
}

/** Shows in the choice of transports which of them this server has. */
function markOffered(offered) {
    if (offered.length === 0) {
        return;
    }
    for (const option of page.transport.options) {
        const missing = option.value !== "automatic" && !offered.includes(option.value);
        option.disabled = missing;
        option.textContent = missing ? `${option.value} (not offered by this server)` : option.dataset.label;
    }
}

function showFigures({batch, acknowledged, open, resends}) {
    page.batch.textContent = batch ?? "–";
    page.acknowledged.textContent = acknowledged ?? "–";
    page.open.textContent = batch === null ? "–" : open;
    page.resends.textContent = batch === null ? "–" : resends;
}

/** Shows the members. The chosen one stays chosen after they have left: what is meant for one person is not sent to everyone. */
function showMembers(names) {
    const own = connection.person?.name;
    const focused = page.members.contains(document.activeElement) ? document.activeElement.textContent : null;
    page.members.replaceChildren(...names.map((name) => memberOf(name, own)));
    [...page.members.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
    page.count.textContent = names.length;
    const chosen = page.to.value;
    const peers = names.filter((name) => name !== own);
    const gone = [...new Set([chosen, draft?.to ?? ""])].filter((name) => name !== "" && !peers.includes(name));
    page.to.replaceChildren(new Option("everyone", ""), ...peers.map((name) => new Option(name, name)), ...gone.map((name) => new Option(`${name} (left)`, name)));
    page.to.value = chosen;
    page.phrase.placeholder = placeholder();
}

/** Returns the list entry of one member: a button that addresses them. */
function memberOf(name, own) {
    const entry = document.createElement("li");
    if (name === own) {
        entry.textContent = `${name} (you)`;
        return entry;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "member";
    button.textContent = name;
    button.title = "Write to this member only";
    button.addEventListener("click", () => {
        page.to.value = name;
        page.phrase.placeholder = placeholder();
        page.phrase.focus();
    });
    entry.append(button);
    return entry;
}

function placeholder() {
    return page.to.value === "" ? "Say something" : `To ${page.to.value} only`;
}

page.join.addEventListener("submit", (event) => {
    event.preventDefault();
    join({
        name: page.name.value.trim(),
        room: page.room.value.trim(),
        transport: page.transport.value,
        reliable: page.reliable.checked,
    });
});

page.compose.addEventListener("submit", (event) => {
    event.preventDefault();
    const {peers, text} = parsePhrase(page.phrase.value, page.to.value);
    if (text !== "") {
        connection.say(text, peers, takeDraft());
        showDraft();
    }
    page.phrase.focus();
});

page.switch.addEventListener("submit", (event) => {
    event.preventDefault();
    const room = page.otherRoom.value.trim();
    if (room !== connection.person.room) {
        connection.enter(room);
        log.clear();
        if (page.phrase.value === "") { // what is typed already may be for one only
            page.to.value = "";
        }
        showMembers([]);
        showRoom(room);
    }
    page.phrase.focus();
});

page.phrase.addEventListener("input", () => {
    if (page.phrase.value === "") {
        takeDraft(); // it was deleted
    }
});

page.to.addEventListener("change", () => {
    page.phrase.placeholder = placeholder();
});

page.acknowledge.addEventListener("change", () => {
    connection.acknowledging = page.acknowledge.checked;
});

page.offline.addEventListener("click", () => {
    if (connection.isOffline) {
        connection.goOnline();
    } else {
        connection.goOffline();
    }
});

page.leave.addEventListener("click", () => connection.leave());

// A reload keeps the session: the official reload extension carries it over, we carry who we are.
window.addEventListener("pagehide", () => {
    const person = connection.suspend();
    if (person !== null) {
        sessionStorage.setItem(SAVED, JSON.stringify({...person, held: breaking.held}));
    }
});
// A page that comes back from the browser's memory has a suspended connection: begin again.
window.addEventListener("pageshow", (event) => {
    if (event.persisted) {
        location.reload();
    }
});

const saved = sessionStorage.getItem(SAVED);
sessionStorage.removeItem(SAVED);
showState("idle");
if (saved !== null) {
    join(JSON.parse(saved), true);
}

/**
 * The list of what was said. It shows what others sent, so nothing in it is ever parsed as markup.
 */
import {make} from "./elements.js";

/** Lines kept on the page; the oldest go first. */
const KEPT = 500;
/** Pixels from the end that still count as being there. */
const NEAR = 40;
/** Characters of one line that are shown. */
const SHOWN = 4000;

const clock = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});

export class Log {
    #list;
    #rows = new WeakMap();
    /** Whether the reader is at the end, and wants to stay there. */
    #following = true;

    /** @param list the <ol> that shows the lines */
    constructor(list) {
        this.#list = list;
        list.addEventListener("scroll", () => {
            this.#following = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
        });
        new ResizeObserver(() => this.#follow()).observe(list);
    }

    clear() {
        this.#list.replaceChildren();
        this.#following = true;
    }

    /** Adds a line of the page's own. */
    notice(text) {
        this.#append(row("notice", "", text));
    }

    /**
     * Shows one message of the room, or, when it came before, marks the line that shows it.
     * @param message the Bayeux message; its data should be {user, chat, membership?, scope?, peer?}, but may be anything
     * @param own the reader's own name
     */
    heard(message, own) {
        if (message.again !== undefined) {
            mark(this.#rows.get(message.again.first), message.again.times);
            this.#follow();
            return;
        }
        const line = lineOf(message.data, own);
        this.#rows.set(message, line);
        this.#append(line);
    }

    /** Says of the line that shows this message what became of it; `kind` is broken, taken or redriven. */
    tag(message, kind, text) {
        const fate = this.#rows.get(message)?.querySelector(".fate");
        if (fate) {
            fate.className = `fate ${kind}`;
            fate.textContent = text;
            fate.hidden = false;
            this.#follow();
        }
    }

    #append(line) {
        this.#list.append(line);
        while (this.#list.childElementCount > KEPT) {
            this.#list.firstElementChild.remove();
        }
        this.#follow();
    }

    #follow() {
        if (this.#following) {
            this.#list.scrollTop = this.#list.scrollHeight;
        }
    }
}

/** Shortens whatever was sent to a text that can be shown. */
function textOf(value) {
    const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
    return text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
}

function lineOf(data, own) {
    const {user, chat, membership, scope, peer} = data !== null && typeof data === "object" ? data : {};
    if (chat === undefined) {
        return row("message", "", textOf(data));
    }
    if (membership !== undefined) {
        return row("membership", "", textOf(chat));
    }
    if (scope === "error") {
        return row("notice", "", textOf(chat));
    }
    const kind = scope === "private" ? "message private" : "message";
    const scoped = scope === "private" ? `private to ${textOf(peer ?? "you")}` : "";
    return row(user === own ? `${kind} own` : kind, textOf(user ?? ""), textOf(chat), scoped);
}

/** Returns a line: when, who, for whom, what, and the places of the marks "sent again" and of its fate. */
function row(kind, who, what, scope = "") {
    const line = document.createElement("li");
    line.className = kind;
    const time = make("time", "when", clock.format(new Date()));
    time.dateTime = new Date().toISOString();
    const again = make("span", "again", "");
    // The mark changes with every resend; a screen reader need not say so each time.
    again.setAttribute("aria-live", "off");
    again.hidden = true;
    line.append(time, " ");
    if (who !== "") {
        line.append(make("b", "who", who), " ");
    }
    if (scope !== "") {
        line.append(make("span", "scope", scope), " ");
    }
    const fate = make("span", "fate", "");
    fate.hidden = true;
    line.append(make("span", "what", what), " ", again, fate);
    return line;
}

function mark(line, times) {
    const again = line?.querySelector(".again");
    if (again) {
        again.textContent = `sent again ×${times}`;
        again.hidden = false;
    }
}

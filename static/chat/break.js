/**
 * The panel "Break it": the listener of this page throws what was chosen, and the panel shows what became of the message.
 *
 * Who throws and what is known lives in Breaker, what operators do in Operator; here is what is pressed and shown.
 */
import {Breaker, PLAIN, State} from "./breaker.js";
import {SETTLING} from "./connection.js";
import {Operator} from "./operator.js";

/** Milliseconds between two looks of an operator; after one that failed. */
const LOOK = 1000;
const LOOK_AFTER_FAILURE = 5000;
/** Sessions of this page whose letters are shown: one that was given up has a successor. */
const SESSIONS = 3;

const {retries: RETRIES, delay: DELAY} = SETTLING.dispatcher;

const EXPECTED = {
    "user.update.error": "The message becomes a dead letter; the next one is delivered.",
    "user.update.deadMessage": "The same, whatever delivery.on_user_error says.",
    "user.update.holdback": "The message stays first in the queue, and nothing more arrives until an operator releases the session.",
    "communication.timeout": `The message comes again after ${DELAY / 1000} s. After ${RETRIES + 1} failures in a row the session is given up.`,
    [PLAIN]: "It counts as user.update.internalError: a dead letter.",
};

const OPERATOR_HINTS = {
    asked: "Operators see dead letters and release sessions. The server keeps the token in data/admin.token; this page keeps it in memory only.",
    known: "The token is in this page's memory. Leaving or reloading forgets it.",
};

const clock = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});

export class BreakPanel {
    #page;
    #log;
    #settle;
    #breaker = new Breaker();
    #operator = new Operator();
    /** The sessions that this page had, the newest first: {name, isSettling, isStored}. */
    #sessions = [];
    #isReliable = false;
    #waiting = null;
    #rows = new Map();
    #timer = null;

    /**
     * @param page the page's elements by id
     * @param log the list of what was said
     * @param settle called when the server has to be told how each message fares
     */
    constructor(page, log, settle) {
        this.#page = page;
        this.#log = log;
        this.#settle = settle;
        page.breaking.addEventListener("toggle", () => this.#toggled());
        page.breakForm.addEventListener("change", () => this.#showChoice());
        page.breakForm.addEventListener("submit", (event) => this.#arm(event));
        page.operator.addEventListener("submit", (event) => this.#login(event));
        page.release.addEventListener("click", () => this.#do(page.release, () => this.#operator.activate(this.#name)));
        document.addEventListener("visibilitychange", () => this.#look());
    }

    /** Since when the session is held back, as far as this page can tell: what a reload would forget. */
    get held() {
        return this.#breaker.held;
    }

    /** Somebody has joined. After a reload the panel is open as before, and `person.held` is what it knew. */
    joined(person) {
        this.#isReliable = person.reliable;
        if (this.#sessions.length === 0 && person.settles) {
            this.#page.breaking.open = true;
            this.#breaker.noteHeld(person.held ?? null);
        }
        this.#show();
    }

    /** The session has ended: nothing of it is kept, the token least of all. */
    left() {
        this.#operator.forget();
        this.#breaker.clear();
        this.#sessions = [];
        this.#waiting = null;
        this.#rows.clear();
        this.#page.fates.replaceChildren();
        this.#page.breaking.open = false;
        this.#page.token.value = "";
        setText(this.#page.operatorTrouble, "");
        clearTimeout(this.#timer);
    }

    /** A handshake was answered with this session. */
    session(session) {
        if (session.isNew && session.name !== this.#name) {
            this.#breaker.begin();
            this.#waiting = null;
        }
        const others = this.#sessions.filter(({name}) => name !== session.name);
        this.#sessions = [session, ...others].slice(0, SESSIONS);
        this.#show();
        this.#look();
    }

    /** Shows a message, and is the listener that fails. */
    heard(message, own) {
        const {chat, membership, scope} = message.data ?? {};
        const isSaid = typeof chat === "string" && membership === undefined && scope !== "error";
        const {fate, failure} = isSaid ? this.#breaker.hear(message, chat) : {fate: null, failure: null};
        if (fate !== null) {
            fate.first ??= message;
            if (fate.first !== message) {
                message.again ??= {first: fate.first, times: 0};
                message.again.times = fate.deliveries - 1;
            }
        }
        this.#log.heard(message, own);
        const redriven = message.ext?.update?.clientProperties?.__redriveOf;
        if (fate !== null) {
            const [kind, text] = failure === null ? ["taken", "taken"] : ["broken", fate.code];
            this.#log.tag(fate.first, kind, redriven === undefined ? text : `redriven, ${text}`);
        } else if (redriven !== undefined) {
            this.#log.tag(message, "redriven", "redriven");
        }
        if (fate !== null || redriven !== undefined || this.#page.delivery.dataset.state === "held") {
            this.#show();
            this.#look();
        }
        if (failure !== null) {
            throw failure;
        }
    }

    get #name() {
        return this.#sessions[0]?.name ?? "";
    }

    get #isReady() {
        return this.#sessions[0]?.isSettling ?? false;
    }

    #toggled() {
        if (this.#page.breaking.open && this.#sessions.length > 0) {
            this.#settle();
        }
        this.#show();
        this.#look();
    }

    #arm(event) {
        event.preventDefault();
        if (this.#breaker.armed === null) {
            this.#breaker.arm(this.#page.breakForm.elements.choice.value, this.#page.breakCount.valueAsNumber);
        } else {
            this.#breaker.disarm();
        }
        this.#show();
    }

    // Operators

    async #login(event) {
        event.preventDefault();
        const {token, tokenButton} = this.#page;
        if (this.#operator.hasToken) {
            this.#operator.forget();
            this.#waiting = null;
            this.#show();
            return;
        }
        await this.#do(tokenButton, async () => {
            await this.#operator.use(token.value.trim());
            token.value = "";
        });
        (this.#operator.hasToken ? tokenButton : token).focus();
    }

    /** Does what a button asks for, and says plainly if it was not done. */
    async #do(button, what) {
        if (button.ariaBusy === "true") {
            return;
        }
        button.ariaBusy = "true"; // and not disabled, which would take the focus away
        setText(this.#page.operatorTrouble, "");
        try {
            await what();
        } catch (refusal) {
            this.#refused(refusal);
        } finally {
            button.ariaBusy = "false";
        }
        this.#show();
        this.#look();
    }

    #refused(refusal) {
        setText(this.#page.operatorTrouble, refusal.message);
        if (refusal.isAboutToken) {
            this.#operator.forget();
            this.#waiting = null;
        }
    }

    /** Looks at the session and its letters, now and from now on, as long as somebody sees it. */
    #look() {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#watch(), 0);
    }

    async #watch() {
        const name = this.#name;
        if (!this.#operator.hasToken || !this.#page.breaking.open || document.hidden || name === "") {
            return;
        }
        clearTimeout(this.#timer);
        let pause = LOOK;
        try {
            const [session, {letters, isAll}] = await Promise.all([
                this.#operator.session(name),
                this.#operator.letters(this.#sessions.map((each) => each.name)),
            ]);
            if (name === this.#name && this.#operator.hasToken) {
                this.#seen(session, letters, isAll);
            }
        } catch (refusal) {
            this.#refused(refusal);
            pause = LOOK_AFTER_FAILURE;
        }
        this.#show();
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#watch(), pause);
    }

    #seen(session, letters, isAll) {
        setText(this.#page.operatorTrouble, "");
        this.#waiting = session?.waiting ?? null;
        if (session !== null) {
            this.#breaker.noteHeld(session.holdback);
        }
        this.#breaker.noteLetters(letters, isAll);
    }

    // What is shown

    #show() {
        if (!this.#page.breaking.open) {
            return;
        }
        this.#showChoice();
        this.#showSession();
        this.#showFates();
        this.#showOperator();
    }

    #showChoice() {
        const page = this.#page;
        const {armed} = this.#breaker;
        const {elements} = page.breakForm;
        setText(page.breakHint, this.#hint());
        page.breakFields.disabled = !this.#isReady;
        setText(page.choiceHint, EXPECTED[elements.choice.value]);
        setText(page.breakButton, armed === null ? "Arm" : "Disarm");
        setText(page.armed, armed === null ? "" : `Armed: ${times(armed.left)}, the listener throws ${nameOf(armed.choice)}.`);
    }

    #hint() {
        if (!this.#isReliable) {
            return "This needs reliable messaging: leave, and join with it enabled.";
        }
        const session = this.#sessions[0];
        if (session === undefined || session.isSettling) {
            const kept = session?.isStored === false ? " This server has no store: what would be a dead letter is only counted." : "";
            return `Let this page's own listener fail, and watch what the server makes of the message.${kept}`;
        }
        return "Asking the server to be told how each message fares. If this stays, the server does not have `update` in bayeux.extensions.";
    }

    #showSession() {
        const page = this.#page;
        const {held} = this.#breaker;
        setText(page.sessionName, this.#name || "–");
        page.delivery.dataset.state = held === null ? "going" : "held";
        setText(page.delivery, held === null ? "goes on" : `held back since ${clock.format(held.since)}`);
        setText(page.waiting, this.#waiting ?? "operators see it");
        page.release.disabled = held === null || !this.#operator.hasToken;
        setText(page.releaseHint, held === null || this.#operator.hasToken ? "" : "To release it takes an operator: see below.");
    }

    #showFates() {
        const {fates} = this.#breaker;
        const rows = fates.map((fate) => this.#rowOf(fate));
        this.#page.fatesHint.hidden = rows.length > 0;
        for (const [id, row] of this.#rows) {
            if (!fates.some((fate) => fate.id === id)) {
                row.element.remove();
                this.#rows.delete(id);
            }
        }
        rows.forEach((row, at) => {
            const there = this.#page.fates.children[at];
            if (there !== row.element) {
                this.#page.fates.insertBefore(row.element, there ?? null);
            }
        });
    }

    /** Returns the row of a message, as it is now; it stays the same element, so that nothing loses the focus. */
    #rowOf(fate) {
        if (!this.#rows.has(fate.id)) {
            this.#rows.set(fate.id, this.#newRow(fate));
        }
        const row = this.#rows.get(fate.id);
        setText(row.code, fate.code);
        setText(row.count, `delivery ${fate.deliveries}`);
        setText(row.state, this.#sentence(fate));
        row.element.dataset.state = fate.state;
        row.actions.hidden = fate.letter === null || fate.state !== State.DEAD || !this.#operator.hasToken;
        setText(row.again, this.#isGone(fate) ? "Send to the room" : "Send again");
        row.again.ariaLabel = `${row.again.textContent}: ${fate.text}`;
        return row;
    }

    #newRow(fate) {
        const element = document.createElement("li");
        const row = {element, code: make("code"), count: make("span", "count"), state: make("p"), actions: make("p", "actions")};
        row.again = this.#button("Send again", async () => {
            await this.#operator.redrive(fate.letter.id, this.#isGone(fate));
            this.#breaker.noteDone(fate.letter.id, State.REDRIVEN);
        });
        row.discard = this.#button("Throw away", async () => {
            await this.#operator.discard(fate.letter.id);
            this.#breaker.noteDone(fate.letter.id, State.DISCARDED);
        });
        row.discard.ariaLabel = `Throw away: ${fate.text}`;
        row.actions.append(row.again, row.discard);
        element.append(make("b", "what", fate.text), row.code, row.count, row.state, row.actions);
        return row;
    }

    #button(text, what) {
        const button = make("button", "", text);
        button.type = "button";
        button.addEventListener("click", () => this.#do(button, what));
        return button;
    }

    /** Whether the session that a letter was for is not the page's any more. */
    #isGone(fate) {
        return fate.letter !== null && !fate.letter.receiver.endsWith(`/${this.#name}`);
    }

    #sentence({state, letter, deliveries}) {
        switch (state) {
            case State.HELD:
                return "Held back, first in the queue.";
            case State.AGAIN:
                return `Comes again in ${DELAY / 1000} s. Failure ${deliveries} of ${RETRIES + 1} before the session is given up.`;
            case State.TAKEN:
                return `Taken at delivery ${deliveries}.`;
            case State.REDRIVEN:
                return "Sent again by an operator.";
            case State.DISCARDED:
                return "Thrown away by an operator.";
            case State.GONE:
                return "No dead letter any more: an operator has dealt with it.";
        }
        return letter === null ? "A dead letter. Operators see it." : `Dead letter ${letter.id}: “${letter.reason}”.`;
    }

    #showOperator() {
        const page = this.#page;
        const {hasToken} = this.#operator;
        page.token.disabled = hasToken;
        setText(page.tokenButton, hasToken ? "Forget" : "Use");
        setText(page.operatorHint, OPERATOR_HINTS[hasToken ? "known" : "asked"]);
        page.terminal.hidden = hasToken;
        const name = this.#name || "client/…";
        setText(
            page.commands,
            `crewel sessions activate ${name}\ncrewel dead-letters list --receiver ${name}\ncrewel dead-letters redrive --receiver ${name}`,
        );
    }
}

function times(count) {
    return count === 1 ? "at the next delivery" : `at the next ${count} deliveries`;
}

function nameOf(choice) {
    return choice === PLAIN ? "a plain exception" : choice;
}

function make(tag, kind = "", text = "") {
    const element = document.createElement(tag);
    element.className = kind;
    element.textContent = text;
    return element;
}

/** Sets a text if it is another one: what is said aloud is said once. */
function setText(element, text) {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}

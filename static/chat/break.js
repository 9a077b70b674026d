/**
 * The panel "Break it": the listener of this page throws what was chosen, and the panel shows what happens to the message.
 *
 * Who throws and what is known lives in Breaker, what operators do in Operator; here is what is pressed and shown.
 */
import {Breaker, PLAIN, State} from "./breaker.js";
import {SETTLING} from "./connection.js";
import {make, setText} from "./elements.js";
import {Fates, isFor} from "./fates.js";
import {Operator} from "./operator.js";

/** Milliseconds between two looks of an operator; after one that failed. */
const LOOK = 1000;
const LOOK_AFTER_FAILURE = 5000;
/** Sessions of this page whose letters are shown: one that was given up has a successor. */
const SESSIONS = 3;

const {retries: RETRIES, delay: DELAY} = SETTLING.dispatcher;

const EXPECTED = {
    "user.update.error": "The message becomes a dead letter; the next one is delivered.",
    "user.update.deadMessage": "The same, whatever delivery.on_user_error is set to.",
    "user.update.holdback": "The message stays first in the queue, and nothing more arrives until an operator releases the session.",
    "communication.timeout": `The server sends the message again after ${DELAY / 1000} s. After ${RETRIES + 1} failures in a row, it ends the session.`,
    [PLAIN]: "It counts as user.update.internalError: a dead letter.",
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
    /** Whether the last look failed, and the page says so. */
    #isBlind = false;
    #fates;
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
        this.#fates = new Fates(page.fates, SETTLING.dispatcher, (button, what, fate) => this.#do(button, () => this.#deal(what, fate)));
        page.breaking.addEventListener("toggle", () => this.#toggled());
        page.breakForm.addEventListener("change", () => this.#showChoice());
        page.breakForm.addEventListener("submit", (event) => this.#arm(event));
        page.operator.addEventListener("submit", (event) => this.#login(event));
        page.forget.addEventListener("click", () => this.#logout());
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
        this.#fates.clear();
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
        const {token, tokenButton, forget} = this.#page;
        await this.#do(tokenButton, async () => {
            await this.#operator.use(token.value.trim());
            token.value = "";
        });
        (this.#operator.hasToken ? forget : token).focus();
    }

    #logout() {
        this.#operator.forget();
        this.#waiting = null;
        this.#show();
        this.#page.token.focus();
    }

    async #deal(what, fate) {
        const {id} = fate.letter;
        if (what === "redrive") {
            await this.#operator.redrive(id, !isFor(fate, this.#name));
            this.#breaker.noteDone(id, State.REDRIVEN);
        } else {
            await this.#operator.discard(id);
            this.#breaker.noteDone(id, State.DISCARDED);
        }
    }

    /** Does what a button asks for, and says plainly if it was not done. */
    async #do(button, what) {
        if (button.ariaBusy === "true") {
            return;
        }
        button.ariaBusy = "true"; // and not disabled, which would take the focus away
        this.#isBlind = false;
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
            this.#isBlind = true;
            pause = LOOK_AFTER_FAILURE;
        }
        this.#show();
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#watch(), pause);
    }

    #seen(session, letters, isAll) {
        if (this.#isBlind) {
            this.#isBlind = false;
            setText(this.#page.operatorTrouble, "");
        }
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
        page.armed.dataset.state = armed === null ? "idle" : "armed";
        setText(page.armed, armed === null ? "Not armed." : `Armed for ${times(armed.left)}: ${nameOf(armed.choice)}.`);
    }

    #hint() {
        if (!this.#isReliable) {
            return "This needs reliable messaging: leave, and join with it enabled.";
        }
        const session = this.#sessions[0];
        if (session === undefined || session.isSettling) {
            const kept = session?.isStored === false ? " This server has no store: what would be a dead letter is only counted." : "";
            return `Make this page's listener fail, and see what the server does with the message.${kept}`;
        }
        return "Asking the server to accept delivery statuses. If this text stays, the server does not have `update` in bayeux.extensions.";
    }

    #showSession() {
        const page = this.#page;
        const {held} = this.#breaker;
        setText(page.sessionName, this.#name || "–");
        page.delivery.dataset.state = held === null ? "going" : "held";
        setText(page.delivery, held === null ? "running" : `on hold since ${clock.format(held.since)}`);
        setText(page.waiting, this.#waiting ?? "visible to operators");
        page.release.disabled = held === null || !this.#operator.hasToken;
        setText(page.releaseHint, held === null || this.#operator.hasToken ? "" : "Only an operator can release it: see below.");
    }

    #showFates() {
        const {fates} = this.#breaker;
        this.#page.fatesHint.hidden = fates.length > 0;
        this.#fates.show(fates, this.#operator.hasToken, this.#name);
    }

    #showOperator() {
        const page = this.#page;
        const {hasToken} = this.#operator;
        page.asking.hidden = hasToken;
        page.knowing.hidden = !hasToken;
        page.terminal.hidden = hasToken;
        const name = this.#name || "client/…";
        if (page.commands.dataset.name !== name) {
            page.commands.dataset.name = name;
            page.commands.replaceChildren(...commandsFor(name).map(lineOf));
        }
    }
}

/** What an operator types instead. */
function commandsFor(name) {
    return [
        `crewel sessions activate ${name}`,
        `crewel dead-letters list --receiver ${name}`,
        `crewel dead-letters redrive --all --receiver ${name}`,
    ];
}

/** A command breaks between its words only. */
function lineOf(command) {
    const line = make("li");
    line.append(...command.split(" ").flatMap((word, at) => [at === 0 ? "" : " ", make("span", "", word)]));
    return line;
}

function times(count) {
    return count === 1 ? "the next delivery" : `${count} deliveries`;
}

function nameOf(choice) {
    return choice === PLAIN ? "a plain exception" : choice;
}

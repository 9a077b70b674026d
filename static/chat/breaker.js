/**
 * What this page's listener breaks on purpose, and what happens to each message: the bookkeeping of the panel "Break it".
 *
 * It knows the rules by which the server deals with failures no further than it needs to say what to expect; what really
 * became of a message it learns from the message that comes again, or from the dead letters that an operator sees.
 */

/** Messages that are remembered; the oldest go first. */
const REMEMBERED = 20;
/** Milliseconds after which a message that arrives says that nothing is held back any more; until then it may have been on its way. */
const ON_ITS_WAY = 2000;

/** The choice that is no error code: an exception as programs throw it by mistake. */
export const PLAIN = "plain";
const INTERNAL = "user.update.internalError";

/** What the page's listener throws: the server receives `errorCode` and `message`. */
class Thrown extends Error {
    constructor(message, code) {
        super(message);
        this.errorCode = code;
    }
}

/** How a message stands. */
export const State = Object.freeze({
    DEAD: "dead",
    HELD: "held",
    AGAIN: "again",
    TAKEN: "taken",
    REDRIVEN: "redriven",
    DISCARDED: "discarded",
    /** No letter any more, and this page was not told why. */
    GONE: "gone",
});

export class Breaker {
    #armed = null;
    #held = null;
    /** By message id, the oldest first. */
    #fates = new Map();
    #now;

    constructor(now = Date.now) {
        this.#now = now;
    }

    /** What is still to be thrown, {choice, left}, or null. */
    get armed() {
        return this.#armed;
    }

    /** The message whose failure holds the session back, as far as this page can tell, or null. */
    get held() {
        return this.#held;
    }

    /** Each message that was broken or became a dead letter: {id, text, code, deliveries, state, letter, first}, the oldest first. */
    get fates() {
        return [...this.#fates.values()];
    }

    /** Lets the listener throw at the next so many messages. */
    arm(choice, count) {
        this.#armed = {choice, left: count};
    }

    disarm() {
        this.#armed = null;
    }

    /** Another session has begun: nothing of the one before is held back or comes again. */
    begin() {
        this.#held = null;
        this.#fates.forEach((fate) => {
            if (fate.state === State.HELD || fate.state === State.AGAIN) {
                fate.state = State.DEAD;
            }
        });
    }

    clear() {
        this.#armed = null;
        this.#held = null;
        this.#fates.clear();
    }

    /**
     * Takes note of a message that a person said.
     * @returns {fate, failure}: what is known of it, if it was broken before or is now; and what the listener must throw, or null
     */
    hear(message, text) {
        const told = message.ext?.update;
        if (typeof told?.id !== "string") {
            return {fate: null, failure: null};
        }
        this.#noteRedriven(told.clientProperties?.__redriveOf);
        const known = this.#fates.get(told.id);
        this.#noteReleased(told.id);
        if (known !== undefined) {
            known.deliveries = (told.redeliver ?? 0) + 1;
            known.state = State.TAKEN;
        }
        if (this.#armed === null) {
            return {fate: known ?? null, failure: null};
        }
        const choice = this.#take();
        const fate = known ?? this.#remember({id: told.id, text, deliveries: (told.redeliver ?? 0) + 1, letter: null, first: message});
        fate.code = choice === PLAIN ? INTERNAL : choice;
        fate.state = expected(fate.code);
        if (fate.state === State.HELD) {
            this.#held = {...(this.#held ?? {since: this.#now()}), id: told.id};
        }
        return {fate, failure: failureOf(choice)};
    }

    /**
     * Takes note of the dead letters of this session, as the server lists them.
     * @param isAll whether there are no others
     */
    noteLetters(letters, isAll) {
        const there = new Set(letters.map((letter) => letter.message));
        for (const letter of [...letters].reverse()) {
            const fate = this.#fates.get(letter.message)
                ?? this.#remember({id: letter.message, text: textOf(letter.data), letter: null, first: null});
            if (fate.letter?.id !== letter.id) {
                Object.assign(fate, {letter, code: letter.errorCode, deliveries: letter.attempts, state: State.DEAD});
            }
        }
        for (const fate of this.#fates.values()) {
            if (isAll && fate.letter !== null && fate.state === State.DEAD && !there.has(fate.id)) {
                fate.state = State.GONE;
            }
        }
        if (this.#held !== null && there.has(this.#held.id)) {
            this.#held = null;
        }
    }

    /** An operator has done this to a letter. */
    noteDone(deadId, state) {
        const fate = [...this.#fates.values()].find(({letter}) => letter?.id === deadId);
        if (fate !== undefined) {
            fate.state = state;
        }
    }

    /** The server says whether it holds the session back. It may not have heard yet of a failure of just now. */
    noteHeld(holdback) {
        if (holdback !== null) {
            this.#held = {id: holdback.id, since: holdback.since};
        } else if (this.#held !== null && this.#now() > this.#held.since + ON_ITS_WAY) {
            this.#held = null;
        }
    }

    #take() {
        const {choice, left} = this.#armed;
        this.#armed = left > 1 ? {choice, left: left - 1} : null;
        return choice;
    }

    #noteRedriven(deadId) {
        if (deadId !== undefined) {
            this.noteDone(deadId, State.REDRIVEN);
        }
    }

    /** The held message comes first; another one that comes later says that an operator has taken the held one out. */
    #noteReleased(id) {
        if (this.#held !== null && (id === this.#held.id || this.#now() > this.#held.since + ON_ITS_WAY)) {
            this.#held = null;
        }
    }

    #remember(fate) {
        this.#fates.set(fate.id, fate);
        if (this.#fates.size > REMEMBERED) {
            this.#fates.delete(this.#fates.keys().next().value);
        }
        return fate;
    }
}

function expected(code) {
    if (code === "user.update.holdback") {
        return State.HELD;
    }
    return code.startsWith("communication.") ? State.AGAIN : State.DEAD;
}

function failureOf(choice) {
    return choice === PLAIN ? new Error("the page's listener has a bug") : new Thrown("the page broke it on purpose", choice);
}

function textOf(data) {
    return typeof data?.chat === "string" ? data.chat : JSON.stringify(data) ?? "";
}

/**
 * Lines on their way to the server. Each is kept until the server has answered it.
 *
 * A line with a key is a persistent publish: when it is answered, the server has stored it, and it reaches everybody.
 * If the answer is lost, it is unknown whether it was stored; the key lets the line be published again, for the server
 * knows it by that and says it once. A line without a key is as transient as the connection.
 */

/** Lines that wait at most; more are refused. */
const KEPT = 100;
/** Milliseconds before a line whose answer was lost is published again, if the connection has not come back before. */
const PAUSE = 1000;
/** Milliseconds after which a line is not published again: the server forgets its key after two minutes. */
const LASTING = 100_000;
/** What the server answers a session that it does not know, or whose token has expired; nothing was done, and another follows. */
const UNSEEN = /^402:|^403:token_expired:/;

/** The statuses of requests that the server refuses: it processed nothing of them. */
const REFUSED = [400, 413];
/** Refusals in a row after which a line is to blame; the first one may be meant for another line of its batch. */
const REFUSALS = 4;

export class Outbox {
    #cometd;
    #refused;
    #changed;
    #now;
    #number = 0;
    #isOpen = false;
    /** What waits to be published, in the order in which it was said: {number, channel, data, key, since, refusals}. */
    #waiting = [];
    /** What was published and is not answered. */
    #flying = new Set();

    /**
     * @param cometd the client to publish with
     * @param refused called with a line's data, its key and the reason, for people, when it was not taken
     * @param changed called when the number of waiting lines may have changed
     */
    constructor(cometd, refused, changed = () => {}, now = Date.now) {
        this.#cometd = cometd;
        this.#refused = refused;
        this.#changed = changed;
        this.#now = now;
    }

    /** How many lines wait to be published. */
    get waiting() {
        return this.#waiting.length;
    }

    /** Takes a line; `key` makes it persistent. */
    say(channel, data, key = null) {
        const line = {number: this.#number++, channel, data, key, since: null, refusals: 0};
        if (this.#isOpen) {
            this.#publish(line);
        } else if (this.#waiting.length < KEPT) {
            this.#wait(line);
        } else {
            this.#refused(data, key, "Too many messages are waiting");
        }
    }

    /** The server can be reached again: publishes what waits, and what it has not answered so far. */
    open() {
        const unanswered = [...this.#flying].filter((line) => line.key !== null);
        unanswered.forEach((line) => this.#flying.delete(line));
        this.#waiting = inOrder([...unanswered, ...this.#waiting]);
        this.#isOpen = true;
        this.#flush();
    }

    /** The server cannot be reached: keeps what is said for later. */
    close() {
        this.#isOpen = false;
    }

    /** Forgets everything: the session is over. */
    clear() {
        this.close();
        this.#waiting = [];
        this.#flying.clear();
    }

    #wait(line) {
        this.#waiting = inOrder([...this.#waiting, line]);
        this.#changed();
    }

    #flush() {
        if (!this.#isOpen || this.#waiting.length === 0) {
            return;
        }
        const lines = this.#waiting;
        this.#waiting = [];
        if (lines.some(({refusals}) => refusals > 0)) {
            lines.forEach((line) => this.#publish(line)); // each alone
        } else {
            this.#cometd.batch(() => lines.forEach((line) => this.#publish(line)));
        }
        this.#changed();
    }

    #publish(line) {
        line.since ??= this.#now();
        this.#flying.add(line);
        const properties = line.key === null ? {} : {ext: {publish: {persistent: true, key: line.key}}};
        this.#cometd.publish(line.channel, line.data, properties, (reply) => this.#answered(line, reply));
    }

    #answered(line, reply) {
        if (!this.#flying.delete(line) || reply.successful) {
            return;
        }
        line.refusals = REFUSED.includes(reply.failure?.httpCode) ? line.refusals + 1 : 0;
        const isToBlame = line.refusals === REFUSALS;
        const wasNotSeen = UNSEEN.test(reply.error ?? "") || (line.refusals > 0 && !isToBlame);
        const isRepeatable = !isToBlame && line.key !== null && !reply.error && this.#now() - line.since < LASTING;
        if (wasNotSeen || isRepeatable) {
            this.#wait(line);
            setTimeout(() => this.#flush(), PAUSE);
        } else {
            this.#refused(line.data, line.key, reasonOf(reply));
        }
    }
}

function inOrder(lines) {
    return lines.sort((a, b) => a.number - b.number);
}

function reasonOf(reply) {
    if (REFUSED.includes(reply.failure?.httpCode)) {
        return `The server does not take it (${reply.failure.httpCode})`;
    }
    if (!reply.error) {
        return "No reply came, so it is unknown whether the server accepted it";
    }
    const told = reply.ext?.publish?.message;
    return told ? `Not accepted: ${told} (${reply.error})` : `Not accepted (${reply.error})`;
}

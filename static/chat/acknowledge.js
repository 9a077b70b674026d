/**
 * What is acknowledged, and what came again.
 *
 * The official AckExtension acknowledges every batch by itself. This extension stands outside
 * it: it is registered before it, so it sees incoming messages first and outgoing ones last. It
 * can hold the acknowledged number still, and it keeps the list of what the server still holds
 * for us, so that a message which comes again is known as such. A persistent message is known by its id, however long
 * ago it came and from whichever server; a transient one has none, and is known by its place.
 */

/** How many unacknowledged messages, and how many ids, are remembered; the server's own queue is no longer than this. */
const REMEMBERED = 10000;

export class Acknowledge {
    #holding = false;
    #sent = 0;
    #batch = 0;
    #resends = 0;
    #reliable = false;
    /** Messages received and not yet acknowledged, oldest first: {text, message, batch, times}. */
    #open = [];
    /** The place in #open that the reply being read has reached. */
    #place = 0;
    /** The messages that had an id, by it. */
    #known = new Map();
    #changed;

    /** @param changed called with the figures whenever they may have changed */
    constructor(changed = () => {}) {
        this.#changed = changed;
    }

    /** Stops acknowledging: connects repeat the number that was sent last. */
    hold() {
        this.#holding = true;
    }

    /** Acknowledges again, from the next connect on, everything that has arrived. */
    release() {
        this.#holding = false;
    }

    /** The figures the page shows; batch is null while nothing is acknowledged in this session. */
    get figures() {
        return {
            batch: this.#reliable ? this.#batch : null,
            acknowledged: this.#reliable ? this.#sent : null,
            open: this.#open.length,
            resends: this.#resends,
        };
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            this.#restart();
        } else if (message.channel === "/meta/connect" && typeof message.ext?.ack === "number") {
            if (this.#holding) {
                message.ext.ack = this.#sent;
            }
            this.#acknowledge(message.ext.ack);
        }
        return message;
    }

    incoming(message) {
        if (message.channel === "/meta/handshake") {
            const ack = message.ext?.ack;
            this.#reliable = message.successful && (ack === true || ack?.enabled === true);
        } else if (message.channel === "/meta/connect") {
            this.#close(message);
        } else if (message.data !== undefined && (this.#reliable || message.id !== undefined)) {
            this.#note(message);
        }
        return message;
    }

    /** A new session counts its batches from one and holds nothing of the old one. */
    #restart() {
        this.#sent = 0;
        this.#batch = 0;
        this.#open = [];
        this.#place = 0;
    }

    #acknowledge(batch) {
        this.#sent = batch;
        this.#open = this.#open.filter((entry) => entry.batch > batch);
        this.#place = 0;
        this.#changed(this.figures);
    }

    /** The connect reply ends its batch: what came with it belongs to that batch now. */
    #close(message) {
        if (message.successful && typeof message.ext?.ack === "number") {
            this.#batch = message.ext.ack;
            for (const entry of this.#open.slice(0, this.#place)) {
                entry.batch = this.#batch;
            }
        }
        if (!this.#reliable) {
            this.#open = [];
        }
        this.#place = 0;
        this.#changed(this.figures);
    }

    #note(message) {
        const entry = message.id === undefined ? this.#atPlace(message) : this.#known.get(message.id);
        if (entry === undefined) {
            this.#open.push(this.#first(message));
            this.#open.splice(0, this.#open.length - REMEMBERED);
            this.#place = this.#open.length;
            return;
        }
        entry.times += 1;
        this.#resends += 1;
        message.again = {first: entry.message, times: entry.times};
        this.#reach(entry);
    }

    /** Remembers a message that has not come before. */
    #first(message) {
        const entry = {text: textOf(message), message, batch: Infinity, times: 0};
        if (message.id !== undefined) {
            this.#known.set(message.id, entry);
            if (this.#known.size > REMEMBERED) {
                this.#known.delete(this.#known.keys().next().value);
            }
        }
        return entry;
    }

    /**
     * Returns the open message that a message without an id repeats. A reply repeats what is open, in order, before it
     * brings anything new. So what equals the next open one is that one; two equal texts sent by a person stay two.
     */
    #atPlace(message) {
        const text = textOf(message);
        return this.#open.find((entry, at) => at >= this.#place && entry.text === text);
    }

    /** The reply has come to this message, which may have been acknowledged, and be open again. */
    #reach(entry) {
        let at = this.#open.indexOf(entry);
        if (at < 0) {
            at = this.#place;
            this.#open.splice(at, 0, entry);
            entry.batch = Infinity;
        }
        this.#place = at + 1;
    }
}

function textOf(message) {
    return JSON.stringify([message.channel, message.id ?? message.data]);
}

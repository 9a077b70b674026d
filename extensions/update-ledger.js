/**
 * The delivery statuses of one session: the bookkeeping of update.js. This module does not know the client.
 */

const INTERNAL = "user.update.internalError";
const LONGEST_CODE = 200;
const LONGEST_TEXT = 500;

/** The statuses that the server has not confirmed: one for each message, and the request that carries it, if any. */
class Statuses {
    #open = new Map();

    /** Notes the status of a message. A status that does not end it has no effect after one that does. */
    put(status) {
        const known = this.#open.get(status.id);
        if (known && isEnd(known.status) && !isEnd(status)) {
            return;
        }
        this.#open.set(status.id, {status, carrier: null});
    }

    /** Returns statuses that no request carries: at least one, as many as fit. This request carries them now. */
    take(carrier, room) {
        const taken = [];
        for (const entry of this.#open.values()) {
            if (entry.carrier === null) {
                room -= JSON.stringify(entry.status).length + 1;
                if (room < 0 && taken.length) {
                    break;
                }
                entry.carrier = carrier;
                taken.push(entry.status);
            }
        }
        return taken;
    }

    /** A request had a reply: the server has the statuses that it carried. */
    confirm(carrier) {
        this.#open.forEach((entry, id) => entry.carrier === carrier && this.#open.delete(id));
    }

    /** A request probably failed: its statuses must be sent again. Without `carrier`, those of all requests. */
    release(carrier = null) {
        this.#open.forEach((entry) => {
            if (carrier === null || entry.carrier === carrier) {
                entry.carrier = null;
            }
        });
    }

    /** Whether there are statuses that no request carries. */
    get areWaiting() {
        for (const entry of this.#open.values()) {
            if (entry.carrier === null) {
                return true;
            }
        }
        return false;
    }
}

function isEnd({state}) {
    return state !== "WORKING" && state !== "UNCLAIMED";
}

/** One delivery, while its listeners process it. It ends when all of them have finished; the first failure counts. */
class Handling {
    /** Whether a listener was called with it. */
    isTaken = false;
    #left = 1; // the client itself, which is calling the listeners
    #failure = null;
    #ended;

    constructor(ended) {
        this.#ended = ended;
    }

    failed(reason) {
        this.isTaken = true;
        this.#failure ??= described(reason);
    }

    begin() {
        this.#left += 1;
    }

    end() {
        this.#left -= 1;
        if (this.#left === 0) {
            this.#ended(this.#failure);
        }
    }
}

/** The messages of one session: in progress, acknowledged (the latest ids), and statuses to send. */
export class Ledger {
    statuses = new Statuses();
    /** The messages that no listener has taken, by id: {message, handling, since, timer}. */
    unclaimed = new Map();
    #atWork = new Map();
    #done = new Set();
    #most;

    constructor(most) {
        this.#most = most;
    }

    isDone(id) {
        return this.#done.has(id);
    }

    handling(id) {
        return this.#atWork.get(id);
    }

    /** Keeps a message until a listener takes it. Returns the message that it displaces, if there are too many. */
    keep(id, entry) {
        this.unclaimed.set(id, entry);
        this.statuses.put({id, state: "UNCLAIMED"});
        return this.unclaimed.size > this.#most ? this.release(this.unclaimed.keys().next().value) : undefined;
    }

    /** Removes and returns a message that no listener has taken so far; undefined if it is not there. */
    release(id) {
        const entry = this.unclaimed.get(id);
        clearTimeout(entry?.timer);
        this.unclaimed.delete(id);
        return entry;
    }

    /** Forgets the messages that no listener has taken: their session has ended. */
    close() {
        this.unclaimed.forEach(({timer}) => clearTimeout(timer));
        this.unclaimed.clear();
    }

    /** Starts the processing of a message, and calls `changed` at its end. A copy that arrives meanwhile starts it again. */
    begin(id, changed) {
        this.#done.delete(id);
        const handling = new Handling((failure) => {
            if (this.#atWork.get(id) === handling) {
                this.#atWork.delete(id);
            }
            this.#end(id, failure);
            changed();
        });
        this.#atWork.set(id, handling);
        return handling;
    }

    #end(id, failure) {
        if (failure === null) {
            this.ok(id);
        } else if (!this.isDone(id)) {
            this.statuses.put({id, ...failure});
        }
    }

    /** Acknowledges a message, perhaps once more: if the server sent it again, it did not get the status. */
    ok(id) {
        this.#done.delete(id);
        this.#done.add(id);
        if (this.#done.size > this.#most) {
            this.#done.delete(this.#done.values().next().value);
        }
        this.statuses.put({id, state: "OK"});
    }
}

/** Returns the status for a failure. The server replaces codes that it does not accept by user.update.internalError. */
function described(reason) {
    const isCoded = typeof reason?.errorCode === "string" && reason.errorCode !== "";
    const text = typeof reason?.message === "string" ? reason.message : isCoded ? "" : String(reason);
    return {errorCode: isCoded ? cut(reason.errorCode, LONGEST_CODE) : INTERNAL, message: cut(text, LONGEST_TEXT)};
}

/** Returns at most so much of a text, and no half of a pair of characters: the server would refuse the whole request. */
function cut(text, most) {
    return text.slice(0, most).replace(/\p{Surrogate}/gu, "\ufffd");
}

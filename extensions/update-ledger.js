/**
 * How the messages of one session fare: the bookkeeping of update.js, which knows the client; this knows nothing of it.
 */

const INTERNAL = "user.update.internalError";
const LONGEST_CODE = 200;
const LONGEST_TEXT = 500;

/** What the server has to be told and has not confirmed: a status a message, and the request that carries it, if any. */
class Statuses {
    #open = new Map();

    /** Notes how a message fares. That it has not ended is no news once its end is known. */
    put(status) {
        const known = this.#open.get(status.id);
        if (known && isEnd(known.status) && !isEnd(status)) {
            return;
        }
        this.#open.set(status.id, {status, carrier: null});
    }

    /** Those that no request carries, as many as fit into so many characters, one at least. This request carries them now. */
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

    /** A request was answered: what it carried is known to the server. */
    confirm(carrier) {
        this.#open.forEach((entry, id) => entry.carrier === carrier && this.#open.delete(id));
    }

    /** A request came to nothing, as far as is known: what it carried has to go again. All of them, without `carrier`. */
    release(carrier = null) {
        this.#open.forEach((entry) => {
            if (carrier === null || entry.carrier === carrier) {
                entry.carrier = null;
            }
        });
    }

    /** Whether there are some that no request carries. */
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

/** One delivery in the hands of its listeners. It ends when all of them have; the first failure counts. */
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

/** What is known of one session's messages: at work, settled OK (the latest of them), and to be told. */
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

    /** Keeps a message until a listener takes it. Returns the one that has to make room, if there are too many. */
    keep(id, entry) {
        this.unclaimed.set(id, entry);
        this.statuses.put({id, state: "UNCLAIMED"});
        return this.unclaimed.size > this.#most ? this.release(this.unclaimed.keys().next().value) : undefined;
    }

    /** Takes a message out that no listener has taken so far; undefined if it is not there. */
    release(id) {
        const entry = this.unclaimed.get(id);
        clearTimeout(entry?.timer);
        this.unclaimed.delete(id);
        return entry;
    }

    /** Forgets what no listener has taken: its session is over. */
    close() {
        this.unclaimed.forEach(({timer}) => clearTimeout(timer));
        this.unclaimed.clear();
    }

    /** Begins with a message; `changed` is called when it has ended. One that comes again while it is at work counts again. */
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

    /** Settles a message, perhaps once more: if the server sent it again, it has not heard of it. */
    ok(id) {
        this.#done.delete(id);
        this.#done.add(id);
        if (this.#done.size > this.#most) {
            this.#done.delete(this.#done.values().next().value);
        }
        this.statuses.put({id, state: "OK"});
    }
}

/** What the server receives about a failure. It makes user.update.internalError of codes that it does not take. */
function described(reason) {
    const isCoded = typeof reason?.errorCode === "string" && reason.errorCode !== "";
    const text = typeof reason?.message === "string" ? reason.message : isCoded ? "" : String(reason);
    return {errorCode: isCoded ? reason.errorCode.slice(0, LONGEST_CODE) : INTERNAL, message: text.slice(0, LONGEST_TEXT)};
}

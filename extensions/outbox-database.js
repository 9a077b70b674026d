/** What an outbox keeps in a browser: one IndexedDB for all tabs of an origin, of which one sends at a time. */

import {OutboxFullError} from "./outbox-errors.js";

const STORE = "publishes";
const LOST = ["InvalidStateError", "AbortError", "UnknownError"]; // the browser has closed the database
const OPENINGS = 3; // of the database for one transaction: while the browser clears it, one that was just opened may be closed too

export class OutboxDatabase {
    #name;
    #maxMessages;
    #database = null; // a promise
    #tabs = null; // the BroadcastChannel of the tabs that have this outbox

    constructor({name, maxMessages}) {
        this.#name = name;
        this.#maxMessages = maxMessages;
    }

    /** Calls this when another tab has changed what is kept. */
    hear(heard) {
        if (typeof BroadcastChannel === "function") {
            this.#tabs = new BroadcastChannel(`crewel.outbox ${this.#name}`);
            this.#tabs.unref?.(); // in Node.js, where it would keep a program from ending
            this.#tabs.onmessage = () => heard();
        }
    }

    async close() {
        this.#tabs?.close();
        this.#tabs = null;
    }

    /** Tells the other tabs that there is more or less in the database. */
    tell() {
        this.#tabs?.postMessage(null);
    }

    /** Runs `work` in one tab at a time. (Only secure origins have locks; without one, the keys identify duplicates.) */
    alone(work) {
        return globalThis.navigator?.locks ? navigator.locks.request(this.#name, work) : work();
    }

    /** How many publishes wait. */
    count() {
        return this.#transaction("readonly", (store) => request(store.index("open").count()));
    }

    /** The oldest publishes that wait: {position, key, channel, data, ext}; with a function, those for which it returns true. */
    oldest(most, isWanted = null) {
        return this.#transaction("readonly", (store) => {
            const open = store.index("open");
            return isWanted ? chosen(open, most, isWanted) : request(open.getAll(null, most));
        });
    }

    /** Keeps a publish, unless one with its key waits. It takes the place of a refused one. */
    async add(row) {
        const own = structuredClone(row); // before anything else can change it
        await this.#transaction("readwrite", async (store) => {
            const [count, known] = [await request(store.index("open").count()), await request(store.index("key").get(own.key))];
            if (known && !known.refusal) {
                return;
            }
            if (count >= this.#maxMessages) {
                throw new OutboxFullError(this.#maxMessages);
            }
            if (known) {
                store.delete(known.position);
            }
            store.add({...own, refusal: null, isOpen: 1});
        });
    }

    /** The server has these, or the application has seen that it refused them. */
    async remove(rows) {
        await this.#transaction("readwrite", async (store) => rows.forEach(({position}) => store.delete(position)));
    }

    /** Sets a publish aside. `refusal` is {errorCode, message}. */
    async refuse(row, refusal) {
        const {isOpen, ...rest} = row;
        await this.#transaction("readwrite", (store) => request(store.put({...rest, refusal})));
    }

    /** The publishes that were set aside, oldest first, with their `refusal`. */
    async refused() {
        const rows = await this.#transaction("readonly", (store) => request(store.getAll()));
        return rows.filter((row) => row.refusal);
    }

    /** Returns the result of `work` when its transaction is on disk. Opens the database again if the browser has closed it. */
    async #transaction(mode, work) {
        for (let left = OPENINGS; ; left -= 1) {
            const opening = this.#open();
            let database = null;
            try {
                database = await opening;
                return await transacted(database, mode, work);
            } catch (error) {
                if (left === 1 || !LOST.includes(error?.name)) {
                    throw error;
                }
                database?.close();
                this.#forget(opening);
            }
        }
    }

    #open() {
        if (this.#database === null) {
            const opening = opened(this.#name);
            const forget = () => this.#forget(opening); // the next call opens it again
            this.#database = opening;
            opening.then((database) => {
                database.onclose = forget;
                // Another page deletes it, or has a newer version of this module, and waits until all have closed it.
                database.onversionchange = () => {
                    database.close();
                    forget();
                };
            }, forget);
        }
        return this.#database;
    }

    #forget(opening) {
        if (this.#database === opening) {
            this.#database = null;
        }
    }
}

async function transacted(database, mode, work) {
    const transaction = database.transaction(STORE, mode, {durability: "strict"});
    const done = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error ?? new DOMException("the transaction was aborted", "AbortError"));
    });
    try {
        const result = await work(transaction.objectStore(STORE));
        await done;
        return result;
    } catch (error) {
        done.catch(() => {});
        try {
            transaction.abort();
        } catch {
            // It has ended already.
        }
        throw error;
    }
}

function request(asked) {
    return new Promise((resolve, reject) => {
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
    });
}

/** The first rows of an index for which a function returns true. */
function chosen(index, most, isWanted) {
    const asked = index.openCursor();
    const found = [];
    return new Promise((resolve, reject) => {
        asked.onerror = () => reject(asked.error);
        asked.onsuccess = () => {
            const cursor = asked.result;
            if (cursor === null || found.length === most) {
                resolve(found);
                return;
            }
            if (isWanted(cursor.value)) {
                found.push(cursor.value);
            }
            cursor.continue();
        };
    });
}

async function opened(name) {
    if (typeof indexedDB === "undefined") {
        throw new TypeError("there is no IndexedDB here: an Outbox without a path works in browsers only");
    }
    const asked = indexedDB.open(name, 1);
    asked.onupgradeneeded = () => {
        const store = asked.result.createObjectStore(STORE, {keyPath: "position", autoIncrement: true});
        store.createIndex("key", "key", {unique: true});
        store.createIndex("open", "isOpen"); // rows without the field, which are refused, are not in it
    };
    return request(asked);
}

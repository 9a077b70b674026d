/**
 * Publishes that wait for the server in IndexedDB, so that they survive a lost connection, a reload and a closed tab.
 *
 *     import {Outbox} from "/extensions/outbox.js";
 *     const outbox = new Outbox({onRefused: (publish) => console.warn(publish)});
 *     cometd.registerExtension("outbox", outbox);
 *     await outbox.publish("/orders/today", {pizza: 2});
 *
 * When the promise resolves, the publish is in the database; it leaves it when the server has replied. Each publish has an
 * idempotency key, which the server remembers for two minutes, so a repeat within that time is still one message. All tabs of
 * an origin share the database, and one of them sends at a time. Refused publishes stay, with the reason, until
 * `forgetRefused`.
 */

import {pause} from "./pauses.js";
import {isTemporary} from "./replies.js";

const STORE = "publishes";
const TOGETHER = 50; // publishes in one batch
const DELAYS = {minDelay: 1000, maxDelay: 10000}; // between two attempts that get nothing through, in ms
const CHANNEL = /^\/(?!meta\/)./;
const PATTERN = /\/\*\*?$/;
const WRONG = /^Illegal argument/; // what the official client throws for a message that it never sends
const DIVIDED = [1008, 1009]; // close the socket, for the number or the size of what is sent together, or for another limit
const REFUSED = "Crewel-Refused"; // the header of a response by which the server refuses a request; a proxy's 400 lacks it
const LIMIT = /bayeux\.max_message_bytes is (\d+)/;
const REFUSALS = 3; // in a row of one message alone: one may be meant for what the page sends beside it
const TOO_LARGE = /^maxSendBayeuxMessageSize/;
const ARGUMENT = "user.illegalArgument";
const HALF = /\\ud[89a-f]/; // JSON.stringify escapes what is not a whole pair, and nothing else in this way
const LOST = ["InvalidStateError", "AbortError", "UnknownError"]; // the browser has closed the database
const OPENINGS = 3; // of the database for one transaction: while the browser clears it, one that was just opened may be closed too

/** The outbox is full. */
export class OutboxFullError extends Error {
    constructor(most) {
        super(`the outbox is full: ${most} publishes wait for the server`);
        this.name = "OutboxFullError";
    }
}

export class Outbox {
    #name;
    #most;
    #onRefused;
    #onChange;
    #database = null; // a promise
    #complaint = ""; // the last one that the console has
    #cometd = null;
    #tabs = null; // the BroadcastChannel of the tabs that have this outbox
    #hasWarned = false;
    #isConnected = false;
    #isSending = false;
    #timer = null; // of a pause, in which nothing is sent
    #failures = 0; // attempts in a row that got nothing through
    #waiting = 0;
    #refusals = 0; // in a row, of the first message alone
    #together = TOGETHER; // 1 after a batch that was too large, until all are sent

    /**
     * @param name of the database; each name is a separate outbox
     * @param maxMessages how many publishes wait at most
     * @param onRefused called with each publish that the server refuses permanently: {key, channel, data, errorCode, message}
     * @param onChange called with this outbox when `waiting` may have changed
     */
    constructor(options = {}) {
        if (options === null || typeof options !== "object") {
            throw new TypeError(`an Outbox takes options, such as {name: "orders"}, not ${shown(options)}`);
        }
        const {name = "crewel.outbox", maxMessages = 1000, onRefused = () => {}, onChange = () => {}} = options;
        if (typeof name !== "string") {
            throw new TypeError(`name is a string, not ${shown(name)}`);
        }
        for (const [option, given] of Object.entries({onRefused, onChange})) {
            if (typeof given !== "function") {
                throw new TypeError(`${option} is a function, not ${shown(given)}`);
            }
        }
        if (!Number.isInteger(maxMessages) || maxMessages < 1) {
            throw new RangeError(`maxMessages is a whole number from 1, not ${maxMessages}`);
        }
        this.#name = name;
        this.#most = maxMessages;
        this.#onRefused = onRefused;
        this.#onChange = onChange;
    }

    /** How many publishes of all tabs were waiting for the server when this page last looked. */
    get waiting() {
        return this.#waiting;
    }

    /**
     * Keeps a publish until the server has it; resolves to its key. `ext` has its other fields, such as
     * {publish: {priority: 9}}. A key that is already waiting is not added again. Rejects with an OutboxFullError, with a
     * TypeError for a channel, data or `ext` that cannot be published, or with the DOMException of IndexedDB.
     */
    async publish(channel, data, {key = newKey(), ext = {}} = {}) {
        if (!CHANNEL.test(channel)) {
            throw new TypeError(`a channel begins with /, as in /orders/today, and not with /meta/: ${channel}`);
        }
        if (PATTERN.test(channel)) {
            throw new TypeError(`a message is published to a channel, not to a pattern: ${channel}`);
        }
        if (ext === null || typeof ext !== "object" || Array.isArray(ext)) {
            throw new TypeError(`ext is an object, such as {publish: {priority: 9}}, not ${shown(ext)}`);
        }
        // JSON.stringify throws a TypeError that names what JSON cannot represent, but for these.
        if (JSON.stringify(data) === undefined) {
            throw new TypeError(`JSON cannot represent data of the type ${typeof data}; null stands for no data`);
        }
        const half = Object.entries({channel, data, key, ext}).find(([, value]) => hasHalf(value));
        if (half) {
            throw new TypeError(`${half[0]} has text that is not valid Unicode: half of a surrogate pair`);
        }
        if (this.#cometd === null && !this.#hasWarned) {
            console.warn('the outbox keeps publishes, and sends them after cometd.registerExtension("outbox", outbox)');
            this.#hasWarned = true;
        }
        const row = {key, channel, data, ext, refusal: null};
        await this.#transaction("readwrite", (rows) => this.#add(rows, row));
        await this.#look();
        this.#tell();
        this.#send();
        return key;
    }

    /** The publishes that the server refused permanently, oldest first: {key, channel, data, errorCode, message}. */
    async refused() {
        const rows = await this.#transaction("readonly", (store) => request(store.getAll()));
        return rows.filter((row) => row.refusal).map(refusedPublish);
    }

    /** Deletes the refused publishes. */
    async forgetRefused() {
        await this.#transaction("readwrite", async (store) => {
            const rows = await request(store.getAll());
            rows.filter((row) => row.refusal).forEach((row) => store.delete(row.position));
        });
    }

    registered(name, cometd) {
        this.#cometd = cometd;
        this.#look().catch((error) => this.#complain(error));
        if (typeof BroadcastChannel === "function") {
            this.#tabs = new BroadcastChannel(`crewel.outbox ${this.#name}`);
            this.#tabs.unref?.(); // in Node.js, where it would keep a program from ending
            this.#tabs.onmessage = () => this.#heard();
        }
    }

    unregistered() {
        this.#isConnected = false;
        this.#endPause();
        this.#tabs?.close();
        this.#tabs = this.#cometd = null;
    }

    incoming(message) {
        if (message.channel === "/meta/connect" || message.channel === "/meta/handshake") {
            const was = this.#isConnected;
            this.#isConnected = message.successful === true && message.channel === "/meta/connect";
            if (this.#isConnected && !was) {
                this.#endPause();
                setTimeout(() => this.#send()); // after the client has taken the reply
            }
        }
        return message;
    }

    async #add(store, row) {
        const [count, known] = [await request(store.index("open").count()), await request(store.index("key").getKey(row.key))];
        if (known !== undefined) {
            return;
        }
        if (count >= this.#most) {
            throw new OutboxFullError(this.#most);
        }
        store.add({...row, isOpen: 1});
    }

    async #look() {
        const count = await this.#transaction("readonly", (store) => request(store.index("open").count()));
        if (count !== this.#waiting) {
            this.#waiting = count;
            this.#onChange(this);
        }
    }

    /** Tells the other tabs that there is more or less in the database. */
    #tell() {
        this.#tabs?.postMessage(null);
    }

    /** Another tab has kept a publish, which this one sends if it can, or has sent some. */
    #heard() {
        this.#look().catch((error) => this.#complain(error));
        this.#send();
    }

    async #send() {
        if (this.#isSending || !this.#isConnected || this.#timer !== null) {
            return;
        }
        this.#isSending = true;
        try {
            await locked(this.#name, () => this.#sendAll());
            this.#complaint = "";
        } catch (error) {
            this.#complain(error);
            this.#rest();
        } finally {
            this.#isSending = false;
        }
        if (this.#waiting) {
            this.#send(); // added while the last ones were on their way
        }
    }

    /** One sentence, and not again until the outbox has worked. */
    #complain({message}) {
        if (this.#complaint !== message) {
            this.#complaint = message;
            console.error(`the outbox ${this.#name} cannot send, and tries again: ${message}`);
        }
    }

    async #sendAll() {
        while (this.#isConnected && this.#cometd) {
            const rows = await this.#transaction("readonly", (store) => request(store.index("open").getAll(null, this.#together)));
            if (rows.length === 0) {
                this.#together = TOGETHER;
                break;
            }
            const left = await this.#sendTogether(rows);
            await this.#look();
            if (left < rows.length) {
                this.#failures = 0;
                this.#tell(); // of nothing else: the tabs would wake one another
            }
            if (left) {
                this.#rest();
                break;
            }
        }
        await this.#look();
    }

    /** Publishes these in one batch; returns how many of them must be sent again. */
    async #sendTogether(rows) {
        let replies = [];
        this.#cometd.batch(() => {
            replies = rows.map((row) => this.#publish(row));
        });
        let left = 0;
        for (const [index, reply] of (await Promise.all(replies)).entries()) {
            const row = rows[index];
            const {reason, isCertain} = reply.successful ? {reason: ""} : refusedAs(reply, row);
            const isAlone = rows.length === 1;
            this.#refusals = reason && isAlone ? this.#refusals + 1 : 0;
            if (reply.successful) {
                await this.#transaction("readwrite", (store) => request(store.delete(row.position)));
            } else if (isAlone && (isCertain || this.#refusals >= REFUSALS)) {
                this.#refusals = 0;
                await this.#refuse(row, {error: reason, ext: {publish: {errorCode: ARGUMENT, message: reason}}});
            } else if (reason || DIVIDED.includes(reply.failure?.websocketCode)) {
                this.#together = 1; // which shows the message that is not taken, if it is only one
                left += 1;
            } else if (isTemporary(reply)) {
                left += 1;
            } else {
                await this.#refuse(row, reply);
            }
        }
        return left;
    }

    #publish(row) {
        const publish = {persistent: true, ...row.ext.publish, key: row.key};
        publish.clientProperties = {...publish.clientProperties, idempotencyKey: row.key};
        const fields = {ext: {...row.ext, publish}};
        return new Promise((resolve) => {
            try {
                // The client uses one `failure` for all that fails with a socket.
                this.#cometd.publish(row.channel, row.data, fields, (reply) => resolve({...reply, sent: reply.failure?.message}));
            } catch ({message}) {
                const ext = {publish: {errorCode: ARGUMENT, message}};
                resolve(WRONG.test(message) ? {successful: false, error: message, ext} : {successful: false});
            }
        });
    }

    async #refuse(row, reply) {
        const told = reply.ext?.publish;
        const refusal = {errorCode: told?.errorCode ?? "", message: told?.message ?? reply.error ?? ""};
        const {isOpen, ...rest} = row;
        await this.#transaction("readwrite", (store) => request(store.put({...rest, refusal})));
        this.#onRefused(refusedPublish({...row, refusal}));
    }

    /** Sends again after a pause. */
    #rest() {
        this.#timer ??= setTimeout(() => {
            this.#timer = null;
            this.#send();
        }, pause(this.#failures++, DELAYS));
    }

    #endPause() {
        clearTimeout(this.#timer);
        this.#timer = null;
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

function refusedPublish({key, channel, data, refusal}) {
    return {key, channel, data, ...refusal};
}

/**
 * Why the client or the server never takes what was sent with this message, and whether that is certain; `reason` is empty if it
 * may be taken later. A closed socket fails all that is on its way, and a request may have other messages of the page.
 */
function refusedAs({failure, sent}, {data, ext}) {
    const said = failure?.exception?.message ?? "";
    if (TOO_LARGE.test(said)) {
        return {reason: `${said}: cometd.configure can set a larger one`, isCertain: true};
    }
    const status = failure?.httpCode ?? failure?.websocketCode;
    const limit = LIMIT.exec(failure?.reason)?.[1];
    const isLarger = limit && new Blob([JSON.stringify([sent])]).size > Number(limit);
    if (status === 413 || (status === 1009 && (isLarger || !limit))) {
        return {reason: "the message is larger than bayeux.max_message_bytes of the server", isCertain: Boolean(isLarger)};
    }
    if ((status === 400 && isOfTheServer(failure)) || status === 1007) {
        // The client passes on no more of the answer than this.
        const fault = hasHalf([data, ext]) ? "has half of a surrogate pair" : "is nested deeper than bayeux.max_depth";
        return {reason: `the server cannot read the message (${status}), which probably ${fault}`, isCertain: false};
    }
    return {reason: ""};
}

/** Whether the server refuses the request, as far as can be seen: the transport of a failed request may be an XMLHttpRequest. */
function isOfTheServer({transport}) {
    return typeof transport?.getResponseHeader !== "function" || transport.getResponseHeader(REFUSED) !== null;
}

/** Whether a text in this value is not valid Unicode: no server can read its JSON. */
function hasHalf(value) {
    return HALF.test((JSON.stringify(value) ?? "").replaceAll("\\\\", ""));
}

/** Runs `work` in one tab at a time. (Only secure origins have locks; without one, the keys identify duplicates.) */
function locked(name, work) {
    return globalThis.navigator?.locks ? navigator.locks.request(name, work) : work();
}

/** A wrong argument, as an error shows it. */
function shown(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function newKey() {
    const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
    return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function request(asked) {
    return new Promise((resolve, reject) => {
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
    });
}

async function opened(name) {
    if (typeof indexedDB === "undefined") {
        throw new TypeError("there is no IndexedDB here: an Outbox works in browsers only");
    }
    const asked = indexedDB.open(name, 1);
    asked.onupgradeneeded = () => {
        const store = asked.result.createObjectStore(STORE, {keyPath: "position", autoIncrement: true});
        store.createIndex("key", "key", {unique: true});
        store.createIndex("open", "isOpen"); // rows without the field, which are refused, are not in it
    };
    return request(asked);
}

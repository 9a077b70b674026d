/**
 * Publishes that wait for the server in IndexedDB, so that they survive a lost connection, a reload and a closed tab; or in Node.js in
 * a file, so that they survive the end of the process.
 *
 *     import {Outbox} from "/extensions/outbox.js";
 *     const outbox = new Outbox({onRefused: (publish) => console.warn(publish)});
 *     cometd.registerExtension("outbox", outbox);
 *     await outbox.publish("/orders/today", {pizza: 2});
 *
 * When the promise resolves, the publish is on disk; it leaves it when the server has replied. Each publish has an idempotency
 * key, which the server remembers for two minutes, so a repeat within that time is still one message. All tabs of an origin
 * share a database, and one of them sends at a time; a file belongs to one process. Refused publishes stay, with the reason,
 * until `forgetRefused`.
 */

import {callBack} from "./callbacks.js";
import {NO_TRACES} from "./connect-traces.js";
import {OutboxDatabase} from "./outbox-database.js";
import {OutboxFullError, OutboxInUseError} from "./outbox-errors.js";
import {OutboxFile} from "./outbox-file.js";
import {pause} from "./pauses.js";
import {codeOf, isFull, isTemporary, retryAfter} from "./replies.js";

export {OutboxFullError, OutboxInUseError};

const MAX_MESSAGES = 1000;
const MAX_BYTES = 64 * 1024 * 1024;
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
export class Outbox {
    #name;
    #traces;
    #keeping; // an OutboxDatabase or an OutboxFile
    #onRefused;
    #onChange;
    #complaint = ""; // the last one that the console has
    #cometd = null;
    #hasWarned = false;
    #isConnected = false;
    #sending = null; // a promise
    #isDue = false; // whether to send, when that is over
    #timer = null; // of a pause, in which nothing is sent
    #failures = 0; // attempts in a row that got nothing through
    #resting = new Map(); // by lane, which a cap of the server stops: when it is tried again
    #wake = null; // the timer for that
    #waiting = 0;
    #drains = []; // functions to call when none waits
    #refusals = 0; // in a row, of the first message alone
    #together = TOGETHER; // 1 after a batch that was too large, until all are sent

    /**
     * @param name of the database in a browser; each name is a separate outbox
     * @param path of the file in Node.js, in place of a name
     * @param maxMessages how many publishes wait at most
     * @param maxBytes how much those that wait or were refused have in a file at most
     * @param traces those of the connection
     * @param onRefused called with each publish that the server refuses permanently: {key, channel, data, errorCode, message}
     * @param onChange called with this outbox when `waiting` may have changed
     */
    constructor(options = {}) {
        if (options === null || typeof options !== "object") {
            throw new TypeError(`an Outbox takes options, such as {name: "orders"}, not ${shown(options)}`);
        }
        const {path, name = path ?? "crewel.outbox", maxMessages = MAX_MESSAGES, maxBytes = MAX_BYTES} = options;
        const {onRefused = () => {}, onChange = () => {}, traces = NO_TRACES} = options;
        if (path !== undefined && (typeof path !== "string" || !path || name !== path)) {
            throw new TypeError(`path is that of a file, such as "orders.outbox", and takes the place of name, not ${shown(path)}`);
        }
        if (typeof name !== "string") {
            throw new TypeError(`name is a string, not ${shown(name)}`);
        }
        for (const [option, given] of Object.entries({onRefused, onChange})) {
            if (typeof given !== "function") {
                throw new TypeError(`${option} is a function, not ${shown(given)}`);
            }
        }
        for (const [option, given] of Object.entries({maxMessages, maxBytes})) {
            if (!Number.isInteger(given) || given < 1) {
                throw new RangeError(`${option} is a whole number from 1, not ${given}`);
            }
        }
        this.#name = name;
        this.#keeping = path === undefined ? new OutboxDatabase({name, maxMessages}) : new OutboxFile({path, maxMessages, maxBytes});
        this.#traces = traces;
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
     * TypeError for a channel, data or `ext` that cannot be published, with the DOMException of IndexedDB, or with an
     * OutboxInUseError or the error of the file.
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
        await this.#traces.sending("publish", channel, ext, (kept) => this.#keeping.add({key, channel, data, ext: kept}));
        await this.#look().catch((error) => this.#complain(error)); // the publish is on disk, and will be sent
        this.#keeping.tell();
        this.#send();
        return key;
    }

    /** The publishes that the server refused permanently, oldest first: {key, channel, data, errorCode, message}. */
    async refused() {
        return (await this.#keeping.refused()).map(refusedPublish);
    }

    /** Deletes the refused publishes. */
    async forgetRefused() {
        await this.#keeping.remove(await this.#keeping.refused());
    }

    /** Resolves when the server has replied to all publishes that wait. */
    async drained() {
        await this.#look();
        if (this.#waiting) {
            await new Promise((resolve) => this.#drains.push(resolve));
        }
    }

    /** Resolves when an outbox that is not registered has given up its file, with the publishes that wait in it. */
    async close() {
        await this.#sending;
        if (this.#cometd === null) {
            await this.#keeping.close();
        }
    }

    registered(name, cometd) {
        this.#cometd = cometd;
        this.#keeping.hear(() => this.#heard());
        this.#look().catch((error) => this.#complain(error));
    }

    unregistered() {
        this.#isConnected = false;
        this.#endPause();
        clearTimeout(this.#wake);
        this.#cometd = null;
        this.close();
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

    async #look() {
        const count = await this.#keeping.count();
        if (count === 0) {
            this.#drains.splice(0).forEach((resolve) => resolve());
        }
        if (count !== this.#waiting) {
            this.#waiting = count;
            callBack("onChange", this.#onChange, this);
        }
    }

    /** Another tab has kept a publish, which this one sends if it can, or has sent some. */
    #heard() {
        this.#look().catch((error) => this.#complain(error));
        this.#send();
    }

    #send() {
        this.#isDue = true;
        if (this.#sending === null && this.#isConnected && this.#timer === null) {
            this.#isDue = false;
            this.#sending = this.#sendAlone().finally(() => {
                this.#sending = null;
                if (this.#isDue) {
                    this.#send(); // what was added while the last ones were on their way
                }
            });
        }
    }

    async #sendAlone() {
        try {
            await this.#keeping.alone(() => this.#sendAll());
            this.#complaint = "";
        } catch (error) {
            this.#complain(error);
            this.#rest();
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
            const rows = await this.#oldest();
            if (rows.length === 0) {
                this.#together = TOGETHER;
                break;
            }
            if (this.#cometd === null) { // while it read
                break;
            }
            const {left, gone, wait} = await this.#sendTogether(rows);
            await this.#look();
            if (gone) {
                this.#failures = 0;
                this.#keeping.tell(); // of nothing else: the tabs would wake one another
            }
            if (left) {
                this.#rest(wait);
                break;
            }
        }
        this.#sendLater();
        await this.#look();
    }

    /** What is to be sent next: nothing of the lanes that rest. */
    #oldest() {
        const now = performance.now();
        this.#resting.forEach((until, lane) => until <= now && this.#resting.delete(lane));
        return this.#keeping.oldest(this.#together, this.#resting.size ? (row) => !this.#resting.has(laneOf(row)) : undefined);
    }

    /** Sends again when the first lane has rested. */
    #sendLater() {
        clearTimeout(this.#wake);
        if (this.#resting.size && this.#cometd) {
            const due = Math.min(...this.#resting.values());
            this.#wake = setTimeout(() => this.#send(), Math.max(due - performance.now(), 0));
        }
    }

    /**
     * Publishes these in one batch; returns how many of them must be sent again, how many have gone, and for how long the server
     * puts them off. Those that a cap stops are neither: their lanes rest.
     */
    async #sendTogether(rows) {
        let replies = [];
        this.#cometd.batch(() => {
            replies = rows.map((row) => this.#publish(row));
        });
        let [left, full, wait] = [0, 0, 0];
        const answered = (await Promise.all(replies)).map((reply, index) => [reply, rows[index]]);
        const accepted = answered.filter(([reply]) => reply.successful).map(([, row]) => row);
        if (accepted.length) {
            this.#refusals = 0;
            await this.#keeping.remove(accepted);
        }
        for (const [reply, row] of answered.filter(([{successful}]) => !successful)) {
            const {reason, isCertain} = refusedAs(reply, row);
            const isAlone = rows.length === 1;
            this.#refusals = reason && isAlone ? this.#refusals + 1 : 0;
            if (isAlone && (isCertain || this.#refusals >= REFUSALS)) {
                this.#refusals = 0;
                await this.#refuse(row, {error: reason, ext: {publish: {errorCode: ARGUMENT, message: reason}}});
            } else if (reason || DIVIDED.includes(reply.failure?.websocketCode)) {
                this.#together = 1; // which shows the message that is not taken, if it is only one
                left += 1;
            } else if (isFull(reply)) {
                this.#resting.set(laneOf(row), performance.now() + Math.max(retryAfter(reply), DELAYS.minDelay));
                full += 1;
            } else if (isTemporary(reply)) {
                left += 1;
                wait = Math.max(wait, retryAfter(reply));
            } else {
                await this.#refuse(row, reply);
            }
        }
        return {left, gone: rows.length - left - full, wait};
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
        const refusal = {errorCode: codeOf(reply), message: reply.ext?.publish?.message ?? reply.error ?? ""};
        await this.#keeping.refuse(row, refusal);
        callBack("onRefused", this.#onRefused, refusedPublish({...row, refusal}));
    }

    /** Sends again after a pause, of so many milliseconds at least. */
    #rest(wait = 0) {
        this.#timer ??= setTimeout(() => {
            this.#timer = null;
            this.#send();
        }, Math.max(pause(this.#failures++, DELAYS), wait));
    }

    #endPause() {
        clearTimeout(this.#timer);
        this.#timer = null;
    }
}

/** Within a lane, publishes keep their order: those of a channel, and apart from them those of it that are scheduled. */
function laneOf({channel, ext}) {
    const {deliverAt, deliverAfter} = ext.publish ?? {};
    return `${(deliverAt ?? deliverAfter) === undefined ? "" : "scheduled "}${channel}`;
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

/** A wrong argument, as an error shows it. */
function shown(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function newKey() {
    const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
    return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

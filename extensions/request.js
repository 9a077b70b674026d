/**
 * The browser's half of request and reply: sends requests, waits for the answer to each, and answers requests of others.
 *
 *     import {RequestExtension} from "/extensions/request.js";
 *     const requests = new RequestExtension();
 *     cometd.registerExtension("request", requests);
 *     const answer = await requests.request("/power", 7, {timeout: 5000});
 *     requests.reply("/power", (message) => message.data ** 2);
 *
 * Each request has a reply channel of its own, `/ret/<ID>/<LDDDDDD>`: the server assigns the ID at the handshake, L stands
 * for JavaScript, D is a counter. One subscription receives all answers; it is confirmed before the first request is sent.
 * Register it before the handshake.
 */

import {copied} from "./encodable.js";
import {LONGEST_MS} from "./pauses.js";
import {isOfSession} from "./replies.js";

const JAVASCRIPT = 4; // the language in the names of reply channels
const SERIALS = 1000000;
const REMEMBERED = 10000; // answered requests, to tell what comes twice from what comes late
const TRIES = 3; // of an answer that may or may not have arrived
const RETRY_MS = 1000;
const NEVER_TAKEN = new Set([400, 413]); // HTTP statuses of a message that the server cannot read, or that is too large
const ARGUMENT = /:user\.illegalArgument$/;
const COMPLETE = /^\/ret\/[A-Za-z0-9_-]{1,64}\/[1-9][0-9]{6}$/;
const FAULT = "internal.unknown";
const UNTOLD = "the responder failed";
const NO_SESSION = ": there was no handshake after this extension was registered";

/** A wrong argument, as an error shows it. */
function shown(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}

function checkOptions(options) {
    if (options === null || typeof options !== "object") {
        throw new TypeError(`options are an object, such as {timeout: 5000}, not ${shown(options)}`);
    }
}

function checkTimeout(timeout) {
    if (typeof timeout !== "number" || !(timeout > 0 && timeout <= LONGEST_MS)) {
        throw new TypeError(`timeout is a number of milliseconds above 0 and at most ${LONGEST_MS}, not ${shown(timeout)}`);
    }
}

/** An answer that reports a failure of the responder. A responder throws it to report one. */
export class ErrorAnswer extends Error {
    constructor(errorCode, message = "", data = null) {
        super(message);
        this.name = "ErrorAnswer";
        this.errorCode = errorCode;
        this.data = data;
    }
}

/** No answer came in time. */
export class AnswerTimeoutError extends Error {
    constructor(channel, timeout, hint = "") {
        super(`${channel}: no answer within ${timeout} ms${hint}`);
        this.name = "AnswerTimeoutError";
    }
}

/** The request was refused, or it is unknown whether the server accepted it. `reply` is the reply, if there was one. */
export class RequestError extends Error {
    constructor(message, reply = null) {
        super(message);
        this.name = "RequestError";
        this.reply = reply;
    }
}

/** The channel for the answer to this message, or null if it is not a request. */
export function replyChannel(message) {
    const told = [message?.ext?.replyTo, message?.ext?.update?.replyTo];
    return told.find((name) => typeof name === "string" && COMPLETE.test(name)) ?? null;
}

const responses = new WeakSet(); // what createResponse has made: a responder may return it

function remembered(response) {
    responses.add(response);
    return response;
}

/**
 * Returns the answer to a request, {channel, data, ext}, for `cometd.publish(channel, data, {ext})`, or for a function of `reply`
 * to return. Without `data`, it has the data and the client properties of the request; bytes stay bytes, whether or not the
 * official BinaryExtension is registered.
 */
export function createResponse(message, ...data) {
    const channel = replyChannel(message);
    if (channel === null) {
        throw new TypeError(`the message on ${message?.channel} is not a request, and takes no answer`);
    }
    if (data.length) {
        return remembered({channel, data: data[0], ext: {}});
    }
    const {binary, update} = message.ext;
    const ext = copied({...(binary && {binary}), ...(update?.clientProperties && {publish: {clientProperties: update.clientProperties}})});
    // The extension has decoded the bytes, which JSON cannot represent.
    return remembered({channel, data: structuredClone(message.data), ext});
}

/**
 * The last parts of reply channels: a counter that skips numbers in use. It starts at a random number, because an ID may outlive
 * its page, and an answer to the earlier page must not answer a request of the next one.
 */
export class Serials {
    #next;

    constructor(first = Math.floor(Math.random() * SERIALS)) {
        this.#next = first;
    }

    /** Returns the next channel below `prefix` that is not in `used`. */
    take(prefix, used) {
        for (let left = SERIALS; left > 0; left -= 1) {
            const channel = `${prefix}${JAVASCRIPT}${String(this.#next).padStart(6, "0")}`;
            this.#next = (this.#next + 1) % SERIALS;
            if (!used.has(channel)) {
                return channel;
            }
        }
        throw new RequestError(`${SERIALS} requests are waiting for their answers`);
    }
}

export class RequestExtension {
    #timeout;
    #ownId = randomId();
    #serials = new Serials();
    #cometd = null;
    #id = null; // of this session's reply channels; null while there is no session
    #isGiven = false; // whether the server has given it
    #logins = 0;
    #arrivals = []; // who waits for a session
    #listening = null; // the promise of this session's one subscription
    #pending = new Map(); // by reply channel
    #answered = new Set();

    /** How many answers came to requests that already had one. */
    duplicates = 0;

    /** How many answers came for which no request was waiting. */
    late = 0;

    /** @param options {timeout}: default time that a request waits for its answer, in ms */
    constructor(options = {}) {
        checkOptions(options);
        const {timeout = 10000} = options;
        checkTimeout(timeout);
        this.#timeout = timeout;
    }

    /** The ID of this session's reply channels, or null. */
    get replyId() {
        return this.#id;
    }

    /** How many requests are waiting for an answer. */
    get pending() {
        return this.#pending.size;
    }

    /**
     * Publishes a request; resolves with the first answer, a message. Rejects with an AnswerTimeoutError, an ErrorAnswer, a
     * RequestError, or a TypeError that names a wrong option, or the value in the data that JSON cannot represent. The
     * time-out starts now, and includes waiting for a session.
     * @param options {timeout, ext}; `ext` is more of the message's `ext`, such as {publish: {persistent: true}}
     */
    request(channel, data, options = {}) {
        return new Promise((resolve, reject) => {
            checkOptions(options);
            const {timeout = this.#timeout, ext = {}} = options;
            checkTimeout(timeout);
            const asked = {channel, data: copied(data), ext: copied(ext, "ext"), replyTo: null};
            const giveUp = () => settle(reject, new AnswerTimeoutError(channel, timeout, this.#id === null ? NO_SESSION : ""));
            const timer = this.#client.setTimeout(giveUp, timeout);
            const settle = (how, what) => {
                this.#cometd.clearTimeout(timer);
                this.#pending.delete(asked.replyTo);
                asked.isSettled = true;
                how(what);
            };
            asked.resolve = (answer) => settle(resolve, answer);
            asked.reject = (error) => settle(reject, error);
            this.#ask(asked).catch(asked.reject);
        });
    }

    /**
     * Answers the requests on a channel with the result of the function, or of its promise. An exception becomes an error answer,
     * with its `errorCode` and message if it has one. Returns the handle for `cometd.unsubscribe`.
     */
    reply(channel, answer, props = {}, callback = undefined) {
        return this.#client.subscribe(channel, (message) => this.#respond(message, answer), props, callback);
    }

    registered(name, cometd) {
        this.#cometd = cometd;
    }

    unregistered() {
        this.#lose("");
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            this.#id = this.#listening = null; // the client forgets its subscriptions
            message.ext = {...message.ext, session: {...message.ext?.session}};
        }
        return message;
    }

    incoming(message) {
        if (message.channel === "/meta/handshake" && message.successful) {
            this.#logins += 1;
            const given = message.ext?.session?.replyId;
            this.#isGiven = typeof given === "string";
            this.#id = this.#isGiven ? given : this.#ownId;
            this.#lose(`/ret/${this.#id}/`);
            this.#arrivals.splice(0).forEach((arrive) => arrive(this.#id));
        } else if (message.channel === "/meta/disconnect" && message.successful) {
            this.#lose("");
        }
        return message;
    }

    get #client() {
        if (this.#cometd === null) {
            throw new RequestError('the extension is not registered: call cometd.registerExtension("request", extension) first');
        }
        return this.#cometd;
    }

    // Sending requests

    async #ask(asked) {
        const prefix = await this.#heard();
        if (asked.isSettled) {
            return; // it was too late
        }
        asked.replyTo = this.#serials.take(prefix, this.#pending);
        this.#pending.set(asked.replyTo, asked);
        const {ext, replyTo} = asked;
        const named = this.#isGiven ? {...ext, publish: {...ext.publish, replyTo}} : {...ext, replyTo};
        const logins = this.#logins;
        this.#cometd.publish(asked.channel, asked.data, {ext: named}, (reply) => {
            if (reply.successful || asked.isSettled) {
                return;
            }
            if (isOfSession(reply)) {
                this.#askNext(asked, logins).catch(asked.reject);
            } else {
                asked.reject(new RequestError(`${asked.channel}: ${reasonOf(reply)}`, reply));
            }
        });
    }

    /** Asks after the next login: the server has not taken the request. */
    async #askNext(asked, logins) {
        this.#pending.delete(asked.replyTo); // which may be a channel of a session that is gone
        if (this.#logins === logins) {
            await this.#arrival();
        }
        await this.#ask(asked);
    }

    /** Resolves to the id of the next login. */
    #arrival() {
        return new Promise((resolve) => this.#arrivals.push(resolve));
    }

    /** Resolves to the prefix of this session's reply channels when the server has confirmed the subscription to them. */
    async #heard() {
        for (;;) {
            const id = this.#id ?? (await this.#arrival());
            const logins = this.#logins;
            this.#listening ??= this.#listen(id);
            const reply = await this.#listening;
            if (this.#logins === logins && isOfSession(reply)) {
                await this.#arrival();
            } else if (this.#id === id) {
                if (!reply.successful) {
                    this.#listening = null;
                    throw new RequestError(`answers cannot be received: ${reasonOf(reply)}`, reply);
                }
                return `/ret/${id}/`;
            }
        }
    }

    async #listen(id) {
        return new Promise((resolve) => {
            this.#cometd.subscribe(`/ret/${id}/*`, (message) => this.#take(message), resolve);
        });
    }

    #take(message) {
        const asked = this.#pending.get(message.channel);
        if (asked === undefined) {
            this[this.#answered.has(message.channel) ? "duplicates" : "late"] += 1;
            return;
        }
        this.#answered.add(message.channel);
        if (this.#answered.size > REMEMBERED) {
            this.#answered.delete(this.#answered.values().next().value);
        }
        const error = errorOf(message);
        if (error === null) {
            asked.resolve(message);
        } else {
            asked.reject(error);
        }
    }

    /** Rejects the requests that no answer can reach any more: all except those whose channel has this prefix. */
    #lose(kept) {
        for (const [channel, asked] of [...this.#pending]) {
            if (kept === "" || !channel.startsWith(kept)) {
                asked.reject(new RequestError(`${asked.channel}: the session was lost`));
            }
        }
    }

    // Answering

    #respond(message, answer) {
        const replyTo = replyChannel(message);
        if (replyTo === null) {
            return undefined;
        }
        const done = (async () => {
            let response;
            try {
                const result = await answer(message);
                response = responses.has(result) ? result : {data: copied(result), ext: {}};
            } catch (reason) {
                response = this.#failed(message, reason);
            }
            try {
                await this.#send(replyTo, response, TRIES);
            } catch (reason) {
                if (response.data === null || !isNeverTaken(reason.reply)) {
                    throw reason;
                }
                await this.#send(replyTo, this.#failed(message, reason), TRIES);
            }
        })();
        // Callers may ignore the promise; the update extension acknowledges the request when it resolves.
        done.catch((reason) => this.#cometd._warn("request: an answer could not be sent", replyTo, reason));
        return done;
    }

    #failed(message, reason) {
        const {errorCode, data = null} = reason ?? {};
        if (typeof errorCode === "string" && errorCode) {
            const text = String(reason.message ?? "").slice(0, 500);
            return {data, ext: {error: {errorCode: errorCode.slice(0, 200), message: text}}};
        }
        this.#cometd._warn("request: a responder failed", message.channel, reason);
        return {data: null, ext: {error: {errorCode: FAULT, message: UNTOLD}}};
    }

    /** Publishes an answer, and repeats it if it is unknown whether it arrived: a second one does no harm. */
    #send(replyTo, {data, ext}, tries) {
        return new Promise((resolve, reject) => {
            this.#cometd.publish(replyTo, data, {ext}, (reply) => {
                const isLost = reply.failure !== undefined || isOfSession(reply);
                // A request that is refused may have had other messages of the page.
                const isWorthIt = isLost && tries > 1;
                if (reply.successful) {
                    resolve();
                } else if (isWorthIt) {
                    this.#cometd.setTimeout(() => {
                        this.#send(replyTo, {data, ext}, tries - 1).then(resolve, reject);
                    }, RETRY_MS);
                } else {
                    reject(new RequestError(`${replyTo}: ${reasonOf(reply)}`, reply));
                }
            });
        });
    }
}

/** Whether the server takes no message with this content, whenever it is sent. */
function isNeverTaken({error, failure}) {
    return NEVER_TAKEN.has(failure?.httpCode) || ARGUMENT.test(error ?? "");
}

/** Returns why a reply is not successful. The client refuses some messages without sending them, such as those that are too large. */
function reasonOf({error, failure}) {
    const isRead = !NEVER_TAKEN.has(failure?.httpCode);
    return error ?? failure?.exception?.message ?? (isRead ? "the connection was lost" : `the server does not take it (${failure.httpCode})`);
}

/** Returns the failure that an answer reports, or null. */
function errorOf(message) {
    const told = message.ext?.error;
    if (typeof told === "string") {
        return new ErrorAnswer(FAULT, told, message.data);
    }
    if (typeof told !== "object" || told === null) {
        return null;
    }
    const code = typeof told.errorCode === "string" && told.errorCode ? told.errorCode : FAULT;
    return new ErrorAnswer(code, typeof told.message === "string" ? told.message : "", message.data);
}

/** Returns 128 random bits, for servers that assign no ID. */
function randomId() {
    const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

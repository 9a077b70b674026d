/**
 * A connection to Crewel in one call: the official client with all its extensions for Crewel, kept connected.
 *
 *     import {connect} from "/extensions/connect.js";
 *     const connection = connect({url: "/cometd", name: "joe/1", token: () => fetchToken()});
 *     connection.on("status", ({state}) => console.log(state));
 *     await connection.subscribe("/orders/*", (message) => bake(message.data));
 *     await connection.publish("/orders/today", {pizzas: 2}, {persistent: true});
 *
 * A page has one connection for each `url` and `name`: another call returns the one that is open. Without a browser, such as
 * where a framework renders pages on its server, a connection does nothing.
 */

import {AckExtension, CometD} from "./cometd.js";
import {Attempts, CONNECTING} from "./connect-attempts.js";
import {Subscriptions} from "./connect-subscriptions.js";
import {Token} from "./connect-token.js";
import {Outbox} from "./outbox.js";
import {ReplyError} from "./replies.js";
import {RequestExtension} from "./request.js";
import {SessionExtension} from "./session.js";
import {UpdateExtension} from "./update.js";

export {ReplyError};

const EVENTS = ["status", "rejected", "ended", "outbox"];
const TIMEOUT_MS = 10000; // of a publish or a request that waits for the server
const DELAYS = {minDelay: 1000, maxDelay: 5000}; // the longest is less than bayeux.max_interval_ms: the session is still there
const MAX_SEND = 60000; // characters; the server takes 65536 bytes, the client's own default is 8192
const SESSION = /^40[12]:|:user\.security\.authentication\.expired$/; // of an error
const NOWHERE = "there is no browser here: a connection works in pages only";
const open = new Map(); // the connections of this page, by url and name

/**
 * Connects this page.
 * @param options.url where the server is, such as "/cometd" or "https://example.org/cometd"
 * @param options.name the name of the session, such as "joe/1"; without one, it is anonymous
 * @param options.token a token, or a function that returns one or a promise of one
 * @param options.session more fields of `ext.session`, such as {persistent: true, maxOpen: 1}
 * @param options.waits false: do not wait while another tab has the name
 * @param options.retry {minDelay, maxDelay} between two attempts, in ms
 * @param options.timeout how long a publish or a request waits for the server, in ms
 * @param options.outbox options of the Outbox, or false for none
 * @param options.cometd more of the client's configuration
 */
export function connect(options) {
    const {url, name} = checked(options);
    if (typeof window === "undefined") {
        return nowhere();
    }
    const address = window.location?.href ? new URL(url, window.location.href).href : url;
    const key = `${address} ${name ?? ""}`;
    if (!open.has(key)) {
        open.set(key, new Connection({...options, url: address}, key));
    }
    return open.get(key);
}

class Connection {
    #key;
    #timeout;
    #listeners = new Map(EVENTS.map((event) => [event, new Set()]));
    #waiting = new Set(); // what is sent when the page is connected
    #token;
    #update;
    #requests;
    #subscriptions;
    #attempts;
    #closing = null; // a promise

    constructor({url, name, token, session = {}, waits = true, retry = {}, timeout = TIMEOUT_MS, outbox = {}, cometd = {}}, key) {
        this.#key = key;
        this.#timeout = timeout;
        this.#token = new Token(token);
        this.cometd = new CometD();
        this.cometd.configure({logLevel: "warn", maxSendBayeuxMessageSize: MAX_SEND, ...cometd, url});
        this.cometd.unregisterTransport("callback-polling"); // Crewel does not offer it, and it would send tokens in URLs
        const asked = () => {
            const shown = this.#token.show();
            return {...(name && {name}), ...(shown && {token: shown})};
        };
        this.session = new SessionExtension(asked, {storage: storage(), key: `crewel.session ${key}`, waits});
        this.#update = new UpdateExtension(session, {onEnded: (ended) => this.#subscriptions.end(ended)});
        this.#requests = new RequestExtension({timeout});
        this.outbox = new Outbox({...outbox, onChange: () => this.#emit("outbox", this.outbox)});
        this.#register(outbox !== false && typeof indexedDB !== "undefined");
        this.#subscriptions = new Subscriptions(this.cometd, (ended) => this.#emit("ended", ended));
        this.#attempts = new Attempts(this.cometd, this.session, this.#token, {...DELAYS, ...retry}, (status) => this.#changed(status));
        this.cometd.addListener("/meta/handshake", ({successful}) => successful && this.#subscriptions.restore());
        this.#attempts.start();
    }

    /** Whether the page is connected, as {state, reason, isFinal}. */
    get status() {
        return this.#attempts.status;
    }

    /** Calls the listener with each event; returns what ends that. */
    on(event, listener) {
        const listeners = this.#listeners.get(event);
        if (!listeners) {
            throw new TypeError(`the events are ${EVENTS.join(", ")}, not ${String(event)}`);
        }
        const call = (what) => listener(what); // the same function may be added twice
        listeners.add(call);
        return () => {
            listeners.delete(call);
        };
    }

    /**
     * Calls the listener with each message of a channel or pattern, now and in each session to come. What it returns or throws
     * acknowledges or rejects the message. Resolves when the server has confirmed it.
     * @param options {signal, …}: `signal` is an AbortSignal that ends it, the rest are fields of `ext.subscribe`
     */
    subscribe(channel, listener, options = {}) {
        return this.#subscribe(channel, options, (props, answered) => this.cometd.subscribe(channel, (message) => listener(message), props, answered));
    }

    /** Answers the requests of a channel with what the function returns or throws, now and in each session to come. */
    reply(channel, answer, options = {}) {
        return this.#subscribe(channel, options, (props, answered) => this.#requests.reply(channel, answer, props, answered));
    }

    /**
     * Publishes once, when the page is connected. Resolves with the server's reply. Rejects with a ReplyError if the server refuses
     * it, or if it is unknown whether the server has it. What must arrive goes into the `outbox`.
     * @param options {timeout, …}: how long it waits to be connected; the rest are fields of `ext.publish`
     */
    publish(channel, data, {timeout = this.#timeout, ...fields} = {}) {
        const props = Object.keys(fields).length ? {ext: {publish: fields}} : {};
        return new Promise((resolve, reject) => {
            const send = (refused) => {
                const client = this.cometd.getClientId();
                const answered = (reply) => (reply.successful ? resolve(reply) : refused(reply, client));
                try {
                    this.cometd.publish(channel, data, props, answered);
                } catch (error) {
                    reject(error); // such as of a channel that cannot be one
                }
            };
            const fail = (reply) => reject(new ReplyError(channel, reply));
            const again = (reply, client) => {
                // The session is gone, or its token has expired: the client is about to get another one.
                if (isOfSession(reply)) {
                    this.#whenConnected(timeout, () => send(fail), fail, client);
                } else {
                    fail(reply);
                }
            };
            this.#whenConnected(timeout, () => send(again), fail);
        });
    }

    /**
     * Publishes a request when the page is connected; resolves with the first answer. `timeout` includes waiting for the connection.
     * Rejects as `RequestExtension.request` does, or with a ReplyError if there is no connection.
     */
    request(channel, data, {timeout = this.#timeout, ...options} = {}) {
        const end = Date.now() + timeout;
        return new Promise((resolve, reject) => {
            const send = () => {
                const left = Math.max(end - Date.now(), 1);
                this.#requests.request(channel, data, {...options, timeout: left}).then(resolve, reject);
            };
            this.#whenConnected(timeout, send, (reply) => reject(new ReplyError(channel, reply)));
        });
    }

    /** Restarts the time in which the message must be acknowledged. */
    working(message) {
        this.#update.working(message);
    }

    /** Ends the session, and all subscriptions. Resolves when the server knows, or is not reached. */
    close() {
        this.#closing ??= new Promise((resolve) => {
            this.#attempts.close(resolve);
        }).then(() => {
            this.session.forget(); // where the server is not reached, it does not know
            ["outbox", "request", "update", "session"].forEach((name) => this.cometd.unregisterExtension(name));
        });
        return this.#closing;
    }

    #register(hasOutbox) {
        const {cometd} = this;
        cometd.registerExtension("session", this.session);
        cometd.registerExtension("ack", new AckExtension());
        cometd.registerExtension("update", this.#update);
        cometd.registerExtension("request", this.#requests);
        if (hasOutbox) {
            cometd.registerExtension("outbox", this.outbox);
        }
        cometd.onListenerException = (error, handle, isListener, message) => {
            if (isListener || !this.#emit("rejected", {message, error})) {
                console.error(`crewel: a listener of ${message.channel} failed`, error);
            }
        };
    }

    async #subscribe(channel, {signal, ...options}, start) {
        if (this.#isOver) {
            throw new ReplyError(channel, this.#reason());
        }
        signal?.throwIfAborted();
        const listener = Symbol(channel);
        const end = (reason) => this.#subscriptions.remove(listener, channel, reason);
        const aborted = () => end(signal.reason);
        signal?.addEventListener("abort", aborted, {once: true});
        try {
            const reply = await this.#subscriptions.add(listener, channel, start, options);
            const unsubscribe = () => {
                signal?.removeEventListener("abort", aborted);
                return end();
            };
            return {channel, reply, unsubscribe};
        } catch (error) {
            signal?.removeEventListener("abort", aborted);
            throw error;
        }
    }

    #changed(status) {
        if (status.state === "connected") {
            this.#subscriptions.resume();
            [...this.#waiting].forEach(({send}) => send());
        } else {
            this.#subscriptions.pause();
        }
        if (this.#isOver) {
            open.delete(this.#key);
            this.#subscriptions.close(this.#reason());
            [...this.#waiting].forEach(({fail}) => fail(this.#reason()));
        }
        this.#emit("status", status);
    }

    /** Sends when the page is connected, at once if it is, but not with the session of this client: it is gone. */
    #whenConnected(timeout, send, fail, client = null) {
        if (this.#isOver) {
            fail(this.#reason());
        } else if (this.status.state === "connected" && this.cometd.getClientId() !== client) {
            send();
        } else {
            const ended = (then) => (what) => {
                clearTimeout(timer);
                this.#waiting.delete(entry);
                then(what);
            };
            const entry = {send: ended(send), fail: ended(fail)};
            const timer = setTimeout(() => entry.fail(this.#reason(`not connected within ${timeout} ms`)), timeout);
            this.#waiting.add(entry);
        }
    }

    /** Whether there is no connection, and will be none. */
    get #isOver() {
        return this.status.isFinal || this.status.state === "closed";
    }

    /** Why there is no connection, in the form of a failed reply. */
    #reason(what = "no connection") {
        const {state, reason} = this.status;
        return {successful: false, ext: {publish: {errorCode: reason?.errorCode ?? "", message: `${what}: ${reason?.message ?? state}`}}};
    }

    /** Whether there is a listener of the event. */
    #emit(event, what) {
        const listeners = [...this.#listeners.get(event)];
        for (const listener of listeners) {
            try {
                listener(what);
            } catch (error) {
                console.error(`crewel: a listener of ${event} failed`, error);
            }
        }
        return listeners.length > 0;
    }
}

/** Whether a publish was refused for the sake of its session. The server has not taken it. */
function isOfSession({error = ""}) {
    return SESSION.test(error);
}

function storage() {
    try {
        return window.sessionStorage ?? null;
    } catch {
        return null; // a browser may forbid storage
    }
}

function checked(options) {
    if (options === null || typeof options !== "object" || typeof options.url !== "string" || !options.url) {
        throw new TypeError('connect takes options with a url, such as connect({url: "/cometd"})');
    }
    const {name, token} = options;
    if (name !== undefined && (typeof name !== "string" || !name)) {
        throw new TypeError(`name is a string, such as "joe/1", not ${String(name)}`);
    }
    if (token !== undefined && typeof token !== "string" && typeof token !== "function") {
        throw new TypeError(`token is a string or a function that returns one, not ${typeof token}`);
    }
    return options;
}

/** What connect() returns where there is no browser: nothing happens, and what is asked for is rejected, which no caller must handle. */
function nowhere() {
    const rejected = async () => {
        throw new TypeError(NOWHERE);
    };
    const refuse = () => {
        const promise = rejected();
        promise.catch(() => {});
        return promise;
    };
    const on = () => () => {};
    const close = async () => {};
    const outbox = new Outbox();
    return {status: CONNECTING, on, close, outbox, subscribe: refuse, reply: refuse, publish: refuse, request: refuse, working: on, cometd: null, session: null};
}

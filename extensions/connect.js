/**
 * A connection to Crewel in one call: the official client with all its extensions for Crewel, kept connected.
 *
 *     import {connect} from "/extensions/connect.js";
 *     const connection = connect({url: "/cometd", name: "joe/1", token: () => fetchToken()});
 *     connection.on("status", ({state}) => console.log(state));
 *     await connection.subscribe("/orders/*", (message) => bake(message.data));
 *     await connection.publish("/orders/today", {pizzas: 2}, {persistent: true});
 *
 * A page has one connection for each `url` and `name`: another call returns the one that is open, and its functions take the
 * place of those before. Without a browser, such as where a framework renders pages on its server, a connection does nothing.
 */

import {callBack} from "./callbacks.js";
import {AckExtension, CometD} from "./cometd.js";
import {Attempts, CONNECTING} from "./connect-attempts.js";
import {agreed, completed, outboxOf} from "./connect-options.js";
import {Subscriptions, fresh} from "./connect-subscriptions.js";
import {Token} from "./connect-token.js";
import {NO_TRACES, Traces} from "./connect-traces.js";
import {Outbox} from "./outbox.js";
import {LONGEST_MS} from "./pauses.js";
import {Presence} from "./presence.js";
import {ReplyError, isOfSession} from "./replies.js";
import {RequestExtension} from "./request.js";
import {SessionExtension} from "./session.js";
import {UpdateExtension} from "./update.js";

export {ReplyError};

const EVENTS = ["status", "rejected", "ended", "outbox"];
const MAX_SEND = 60000; // characters; the server takes 65536 bytes, the client's own default is 8192
const NOWHERE = "there is no browser here: a connection works in pages only";
const open = new Map(); // the connections of this page, by url and name: {connection, options}
const leaving = new Map(); // what those that close await, by url and name
const EXTENSIONS = ["session", "ack", "update", "request", "outbox"];

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
 * @param options.traces what `@opentelemetry/api` exports, for spans
 * @param options.cometd more of the client's configuration
 */
export function connect(options) {
    const asked = completed(options);
    if (typeof window === "undefined") {
        return nowhere();
    }
    const url = window.location?.href ? new URL(asked.url, window.location.href).href : asked.url;
    const key = `${url} ${asked.name ?? ""}`;
    const found = open.get(key);
    if (found) {
        found.options = agreed(found.options, options);
        return found.connection;
    }
    const entry = {options: {...asked, url}};
    entry.connection = new Connection(entry, key);
    open.set(key, entry);
    return entry.connection;
}

class Connection {
    #key;
    #entry; // whose functions are those of the latest call of connect()
    #listeners = new Map(EVENTS.map((event) => [event, new Set()]));
    #waiting = new Set(); // what is sent when the page is connected
    #token;
    #traces;
    #update;
    #requests;
    #subscriptions;
    #attempts;
    #before; // resolves when the connection before this one has closed
    #closing = null; // a promise

    constructor(entry, key) {
        const {url, name, token, session, waits, retry, timeout, outbox, traces, cometd} = entry.options;
        this.#key = key;
        this.#entry = entry;
        this.#before = leaving.get(key) ?? Promise.resolve();
        this.#token = new Token(typeof token === "function" ? () => entry.options.token() : token);
        this.#traces = traces === undefined ? NO_TRACES : new Traces(traces);
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
        const onRefused = typeof outbox.onRefused === "function" ? (publish) => entry.options.outbox.onRefused(publish) : outbox.onRefused;
        this.outbox = new Outbox({...outboxOf(entry.options), traces: this.#traces, onRefused, onChange: () => this.#emit("outbox", this.outbox)});
        this.#register(outbox !== false && (typeof indexedDB !== "undefined" || outbox.path !== undefined));
        this.#subscriptions = new Subscriptions(this.cometd, (ended) => this.#emit("ended", ended));
        this.#attempts = new Attempts(this.cometd, this.session, this.#token, retry, (status) => this.#changed(status));
        this.cometd.addListener("/meta/handshake", ({successful}) => successful && this.#subscriptions.restore());
        this.#attempts.start(this.#before);
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
     * acknowledges or rejects the message. Resolves to {channel, reply, unsubscribe} when the server has confirmed it.
     * @param options {signal, …}: `signal` is an AbortSignal that ends it, the rest are fields of `ext.subscribe`
     */
    subscribe(channel, listener, options = {}) {
        const traced = this.#traced(fresh(listener));
        return this.#subscribe(channel, options, (props, answered) => this.cometd.subscribe(channel, traced, props, answered));
    }

    /** Answers the requests of a channel with what the function returns or throws, now and in each session to come. */
    reply(channel, answer, options = {}) {
        const traced = this.#traced(answer);
        return this.#subscribe(channel, options, (props, answered) => this.#requests.reply(channel, traced, props, answered));
    }

    /**
     * Publishes once, when the page is connected. Resolves with the server's reply. Rejects with a ReplyError if the server refuses
     * it, or if it is unknown whether the server has it. What must arrive goes into the `outbox`.
     * @param options {timeout, …}: how long it waits to be connected; the rest are fields of `ext.publish`
     */
    publish(channel, data, {timeout = this.#entry.options.timeout, ...fields} = {}) {
        const ext = Object.keys(fields).length ? {publish: fields} : {};
        return this.#traces.sending("publish", channel, ext, (sent) => this.#publish(channel, data, timeout, sent));
    }

    #publish(channel, data, timeout, ext) {
        const props = Object.keys(ext).length ? {ext} : {};
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
    request(channel, data, {timeout = this.#entry.options.timeout, ext = {}} = {}) {
        return this.#traces.sending("request", channel, ext, (sent) => this.#request(channel, data, timeout, sent));
    }

    #request(channel, data, timeout, ext) {
        const end = Date.now() + timeout;
        return new Promise((resolve, reject) => {
            const send = () => {
                const left = Math.max(end - Date.now(), 1);
                this.#requests.request(channel, data, {ext, timeout: left}).then(resolve, reject);
            };
            this.#whenConnected(timeout, send, (reply) => reject(new ReplyError(channel, reply)));
        });
    }

    /**
     * The presence of a channel, until its `close`: its members, and this page as one of them.
     * @param options {enter, data}: whether the page is present, and with which data
     */
    presence(channel, options = {}) {
        return new Presence(this, channel, options);
    }

    /** Restarts the time in which the message must be acknowledged. */
    working(message) {
        this.#update.working(message);
    }

    /** Ends the session, and all subscriptions. Resolves when the server knows, or is not reached. */
    close() {
        if (this.#closing === null) {
            let closed;
            this.#closing = new Promise((resolve) => {
                closed = resolve;
            });
            this.#makeWay();
            this.#leave().then(closed);
        }
        return this.#closing;
    }

    async #leave() {
        this.session.forget(); // where the server is not reached, it does not know
        const left = new Promise((resolve) => {
            this.#attempts.close(resolve);
        });
        await Promise.all([left, this.#before]);
        this.session.forget(); // what a handshake has brought meanwhile
        this.#unregister();
        await this.outbox.close();
    }

    /** From now on, connect() makes another connection. It begins when this one has closed. */
    #makeWay() {
        if (open.get(this.#key) !== this.#entry) {
            return; // there is another one
        }
        open.delete(this.#key);
        const closing = this.#closing;
        if (closing !== null) {
            leaving.set(this.#key, closing);
            closing.then(() => leaving.get(this.#key) === closing && leaving.delete(this.#key));
        }
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

    #unregister() {
        EXTENSIONS.forEach((name) => this.cometd.unregisterExtension(name));
    }

    /** This function of a message, within a span. */
    #traced(listener) {
        return (message) => this.#traces.processing(message, () => listener(message));
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
            this.#subscriptions.close(this.#reason());
            [...this.#waiting].forEach(({fail}) => fail(this.#reason()));
        }
        if (status.isFinal) {
            this.#unregister();
            this.#makeWay();
        }
        this.#emit("status", status);
    }

    /** Sends when the page is connected, at once if it is, but not as this client: the server has refused it. */
    #whenConnected(timeout, send, fail, client = null) {
        if (!(timeout <= LONGEST_MS)) {
            throw new RangeError(`timeout is at most ${LONGEST_MS} milliseconds, not ${String(timeout)}`);
        }
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
        listeners.forEach((listener) => callBack(`a listener of ${event}`, listener, what));
        return listeners.length > 0;
    }
}

function storage() {
    try {
        return window.sessionStorage ?? null;
    } catch {
        return null; // a browser may forbid storage
    }
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
    const calls = {subscribe: refuse, reply: refuse, publish: refuse, request: refuse, working: on};
    const connection = {status: CONNECTING, on, close, outbox, ...calls, cometd: null, session: null};
    connection.presence = (channel, options) => new Presence(connection, channel, options);
    return connection;
}

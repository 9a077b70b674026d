/**
 * The browser's half of `update`: reports to the server whether the page's listeners processed each message.
 *
 *     import {AckExtension, CometD} from "/static/vendor/cometd/cometd.js";
 *     import {UpdateExtension} from "/extensions/update.js";
 *     cometd.registerExtension("ack", new AckExtension());
 *     cometd.registerExtension("update", new UpdateExtension());
 *
 * A listener acknowledges its message by returning; if it returns a promise, the promise decides. A listener that throws rejects
 * the message: an object or Error keeps its `errorCode`, anything else becomes `user.update.internalError`.
 * A message that no listener takes stays open, and goes to the first matching listener that is added.
 * Register the extension before the handshake and before you add listeners.
 */

import {callBack} from "./callbacks.js";
import {LONGEST_MS, pause} from "./pauses.js";
import {isOfSession} from "./replies.js";
import {Ledger} from "./update-ledger.js";

const SERVICE = "/service/update";
const COLLECT_MS = 10; // a moment in which statuses gather, so that many travel in one message
const DELAYS = {minDelay: 1000, maxDelay: 8000}; // between two attempts to send statuses, in ms
const DEAD_MESSAGE = "user.update.deadMessage";
const ERASED = "ERASED";
const REPLIES = "/ret/";

/** By default, the server retries a failed page a few times, with growing pauses, and an absence is not a failure. */
const RETRYING = {retries: 5, delay: 1000, factor: 2, maxDelay: 60000, absence: false};

export class UpdateExtension {
    #asked;
    #onRejected;
    #onEnded;
    #remembered;
    #unclaimedMs;
    #fresh = []; // listeners that were added just now, and may take what came before them
    #unwanted = new Set(); // channels that were unsubscribed
    #knowsAll = null; // whether all subscriptions of the session were made by this page
    #cometd = null;
    #undo = [];
    #ledger;
    #isGranted = false;
    #heldConnect = null; // the id of the connect that is on its way or held
    #isTelling = false;
    #failures = 0; // in a row, of sending statuses
    #refused = new Set(); // the errors that the console has
    #isScheduled = false;
    #limit = Infinity; // of the server, in bytes of a message
    #isComplaining = false; // of a promise, which is on record already

    /**
     * @param asked more fields of `ext.session`, such as {maxOpen: 1, ackWait: 60000}.
     *     `maxOpen` is the number of messages that the page may have without a status; 1: one message at a time
     * @param onRejected called with each status that the server did not accept: {id, ..., reason}
     * @param onEnded called when the server has ended a subscription, with {subscription, errorCode, message}: its listeners
     *     get no more messages. The client's own listeners of /meta/subscribe and /meta/unsuccessful are called as well
     * @param remembered how many ids of acknowledged messages are kept, to drop duplicates; also the maximum number of messages
     *     that no listener has taken
     * @param unclaimedMs time after which a message that no listener takes becomes a dead letter, in ms; -1: never
     */
    constructor(asked = {}, {onRejected = () => {}, onEnded = () => {}, remembered = 10000, unclaimedMs = -1} = {}) {
        if (!Number.isInteger(unclaimedMs) || unclaimedMs < -1 || unclaimedMs > LONGEST_MS) {
            throw new RangeError(`unclaimedMs is a number of milliseconds, at most ${LONGEST_MS}, or -1 for ever, not ${unclaimedMs}`);
        }
        this.#unclaimedMs = unclaimedMs;
        this.#asked = asked;
        this.#onRejected = onRejected;
        this.#onEnded = onEnded;
        this.#remembered = remembered;
        this.#ledger = new Ledger(remembered);
    }

    /** Whether the server accepts statuses from this session. */
    get isGranted() {
        return this.#isGranted;
    }

    /** How many messages wait for a listener. */
    get unclaimed() {
        return this.#ledger.unclaimed.size;
    }

    /** Reports that a listener is still processing a message: `ackWait`, if the session has one, restarts. */
    working(message) {
        const id = message?.ext?.update?.id;
        if (this.#ledger.handling(id)) {
            this.#ledger.statuses.put({id, state: "WORKING"});
            this.#changed();
        }
    }

    registered(name, cometd) {
        this.#cometd = cometd;
        this.#watch("subscribe");
        this.#watch("addListener");
        this.#watchUnsubscribe();
        this.#hearExceptions();
    }

    unregistered() {
        this.#undo.splice(0).forEach((undo) => undo());
        this.#isGranted = false;
        this.#ledger.close();
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            this.#isGranted = false;
            this.#heldConnect = null;
            this.#isTelling = false;
            const session = {...message.ext?.session, ...this.#asked, update: true, settle: "message"};
            session.dispatcher = retrying(session.dispatcher);
            message.ext = {...message.ext, session};
        } else if (message.channel === "/meta/connect" && this.#isGranted) {
            this.#ledger.statuses.release(this.#heldConnect ?? message.id); // an earlier one was not answered
            this.#heldConnect = message.id;
            const statuses = this.#ledger.statuses.take(message.id, this.#room());
            if (statuses.length) {
                message.ext = {...message.ext, update: statuses};
            }
            this.#changed(); // there may be more of them than fit
        } else if (message.channel === "/meta/disconnect" && this.#isGranted) {
            this.#tellBeforeGoing(message.id);
        }
        return message;
    }

    incoming(message) {
        if (message.channel === "/meta/handshake") {
            this.#negotiated(message);
        } else if (message.channel === "/meta/connect") {
            this.#connected(message);
        } else if (message.channel === "/meta/subscribe" && message.id === undefined && !message.successful) {
            return this.#ended(message);
        } else if (message.channel === SERVICE && message.successful === false) {
            this.#complainOfRefusal(message);
        } else if (this.#isGranted && message.data !== undefined && typeof message.ext?.update?.id === "string") {
            return this.#delivered(message);
        }
        return message;
    }

    #negotiated(reply) {
        if (!reply.successful) {
            return;
        }
        this.#isGranted = reply.ext?.session?.update === true;
        this.#limit = reply.ext?.session?.maxMessageBytes ?? Infinity;
        const isReconnected = this.#isGranted && reply.ext.session.reconnected === true;
        this.#unwanted.clear(); // the client subscribes again
        this.#knowsAll = !isReconnected || (this.#knowsAll ?? false);
        if (isReconnected) {
            this.#ledger.statuses.release(); // the same session: it receives now what it did not receive before
        } else {
            this.#ledger.close();
            this.#ledger = new Ledger(this.#remembered);
        }
        if (!this.#isGranted) {
            const reason = reply.ext?.ack
                ? "the server does not have `update` in bayeux.extensions"
                : "the AckExtension is not registered, or the server does not have `ack` in bayeux.extensions";
            this.#cometd._warn(`update: not granted, so listeners report nothing: ${reason}`);
        }
    }

    #connected(reply) {
        if (reply.id === this.#heldConnect) {
            this.#heldConnect = null;
        }
        if (reply.successful) {
            this.#confirmed(this.#ledger, reply.id, reply);
        } else {
            this.#ledger.statuses.release(reply.id);
        }
    }

    #confirmed(ledger, carrier, reply) {
        ledger.statuses.confirm(carrier);
        const rejected = reply.ext?.update?.rejected;
        for (const status of Array.isArray(rejected) ? rejected : []) {
            console.debug("update: the server did not take", status);
            if (status?.state !== "UNCLAIMED") { // that is our word, and not the page's: the message has ended
                callBack("onRejected", this.#onRejected, status);
            }
        }
    }

    #delivered(message) {
        const {id, initial} = message.ext.update;
        if (this.#ledger.isDone(id) && !initial) {
            this.#ledger.ok(id);
            this.#changed();
            return null;
        }
        this.#handOver(); // what came before goes first
        const earlier = this.#ledger.release(id);
        const ledger = this.#ledger;
        const handling = ledger.begin(id, () => this.#changed());
        // The client calls the listeners now, without waiting: when this runs, it has called all of them.
        queueMicrotask(() => {
            if (handling.isTaken || ledger !== this.#ledger || this.#isOfNoInterest(message)) {
                handling.end();
            } else {
                this.#keep(message, handling, earlier?.since ?? Date.now());
            }
        });
        return message;
    }

    /** The server has ended a subscription. Its notice is acknowledged when the page has received it. */
    #ended(message) {
        const id = message.ext?.update?.id;
        const isTracked = this.#isGranted && typeof id === "string";
        if (isTracked && this.#ledger.isDone(id)) {
            this.#ledger.ok(id);
            this.#changed();
            return null;
        }
        const {errorCode, message: text} = message.ext?.subscribe ?? {};
        console.error(`update: the server has ended the subscription to ${message.subscription}: ${text}`);
        const ledger = this.#ledger;
        // As with a delivery: when this runs, the client has called its listeners.
        queueMicrotask(() => {
            callBack("onEnded", this.#onEnded, {subscription: message.subscription, errorCode, message: text});
            if (isTracked) {
                ledger.ok(id);
                this.#changed();
            }
        });
        return message;
    }

    // Messages without a listener

    /** Whether a message needs no listener: a notice, a late answer, or a message of an ended subscription. */
    #isOfNoInterest({channel, ext: {update}}) {
        const subscription = update.subscription ?? channel;
        return (
            update.state === ERASED ||
            channel.startsWith(REPLIES) ||
            this.#unwanted.has(subscription) ||
            // The server names the subscription of a message; if that has ended, the channel.
            (this.#knowsAll && subscription === channel && [...this.#unwanted].some((pattern) => hears(pattern, channel)))
        );
    }

    #keep(message, handling, since) {
        const {channel, ext} = message;
        const {id} = ext.update;
        const left = this.#unclaimedMs - (Date.now() - since);
        if (this.#unclaimedMs >= 0 && left <= 0) {
            this.#bury(handling);
            return;
        }
        if (![...this.#ledger.unclaimed.values()].some((entry) => entry.message.channel === channel)) {
            console.warn(`update: no listener takes the messages of ${channel}; they stay open until one does`);
        }
        const bury = () => this.#ledger.unclaimed.get(id) === entry && this.#bury(this.#ledger.release(id).handling);
        const timer = this.#unclaimedMs < 0 ? undefined : setTimeout(bury, left);
        const entry = {message, handling, since, timer};
        if (this.#ledger.keep(id, entry)) {
            console.error("update: too many messages without a listener, the oldest is forgotten until it is sent again");
        }
        this.#changed();
    }

    #bury(handling) {
        handling.failed({errorCode: DEAD_MESSAGE, message: `no listener took it within ${this.#unclaimedMs} ms`});
        handling.end();
    }

    /** Calls listeners that were just added with earlier messages, as the client would have called them. */
    #handOver() {
        const fresh = this.#fresh.splice(0);
        for (const [id, {message, handling}] of fresh.length ? [...this.#ledger.unclaimed] : []) {
            const listeners = fresh.filter((handle) => hears(handle.channel, message.channel));
            if (listeners.length && this.#ledger.release(id)) {
                this.#ledger.statuses.put({id, state: "WORKING"});
                listeners.forEach((handle) => this.#call(handle, message));
                handling.end();
            }
        }
    }

    #call(handle, message) {
        try {
            handle.callback.call(handle.scope, message);
        } catch (reason) {
            try {
                this.#cometd.onListenerException(reason, handle, handle.listener, message);
            } catch (failure) {
                this.#cometd._info("Exception during execution of listener exception handler", handle, failure);
            }
        }
    }

    // Sending statuses

    #changed() {
        if (!this.#isScheduled && this.#ledger.statuses.areWaiting) {
            this.#isScheduled = true;
            this.#cometd.setTimeout(() => {
                this.#isScheduled = false;
                this.#tell();
            }, COLLECT_MS);
        }
    }

    /** Publishes the waiting statuses, unless the next connect is about to carry them. */
    #tell() {
        if (!this.#isGranted || this.#isTelling || this.#heldConnect === null || this.#cometd.isDisconnected()) {
            return;
        }
        const ledger = this.#ledger;
        const carrier = {};
        const statuses = ledger.statuses.take(carrier, this.#room());
        if (statuses.length) {
            this.#isTelling = true;
            this.#cometd.publish(SERVICE, statuses, (reply) => this.#told(ledger, carrier, reply));
        }
    }

    #told(ledger, carrier, reply) {
        this.#isTelling = false;
        if (reply.successful) {
            this.#failures = 0;
            this.#confirmed(ledger, carrier, reply);
            this.#changed();
            return;
        }
        ledger.statuses.release(carrier);
        this.#cometd.setTimeout(() => this.#tell(), pause(this.#failures++, DELAYS)); // unless a connect takes them before
    }

    /** A refusal has a lasting reason, such as a policy: log it for the developer, but once. */
    #complainOfRefusal({error}) {
        if (!isOfSession({error}) && !this.#refused.has(error)) {
            this.#refused.add(error);
            console.error(`update: the server refuses statuses (${error}); those that no connect takes are lost when the page goes`);
        }
    }

    #tellBeforeGoing(id) {
        const {statuses} = this.#ledger;
        for (let number = 1, taken; (taken = statuses.take(id, this.#room())).length; number += 1) {
            this.#cometd.send({id: `${id}update${number}`, channel: SERVICE, data: taken});
        }
    }

    /** Half of what the client sends in a message, and the server takes, in characters: most of them are one byte. */
    #room() {
        return Math.min(this.#cometd.getConfiguration().maxSendBayeuxMessageSize, this.#limit) / 2;
    }

    // Results and exceptions of listeners

    /** From now on, observes the results of listeners that are added with this method of the client. */
    #watch(method) {
        const cometd = this.#cometd;
        const original = cometd[method];
        const isOwn = Object.hasOwn(cometd, method);
        cometd[method] = (...given) => {
            const at = typeof given[1] === "function" ? 1 : 2; // the scope may be left out
            const listener = typeof given[at] === "string" ? given[1]?.[given[at]] : given[at];
            let handle = null;
            if (typeof listener === "function") {
                given[at] = this.#watched(listener, () => handle);
            }
            handle = original.apply(cometd, given);
            this.#added(handle);
            return handle;
        };
        this.#undo.push(() => (isOwn ? (cometd[method] = original) : delete cometd[method]));
    }

    /** Calls a new listener with the messages that wait for one, but only after the page has its handle. */
    #added(handle) {
        if (handle && !handle.channel.startsWith("/meta/")) {
            this.#unwanted.delete(handle.channel);
            this.#fresh.push(handle);
            queueMicrotask(() => this.#handOver());
        }
    }

    /** Drops later messages of a subscription that the page has ended. */
    #watchUnsubscribe() {
        const cometd = this.#cometd;
        const original = cometd.unsubscribe;
        const isOwn = Object.hasOwn(cometd, "unsubscribe");
        cometd.unsubscribe = (...given) => {
            const result = original.apply(cometd, given);
            this.#unwanted.add(given[0].channel);
            this.#fresh = this.#fresh.filter((handle) => handle !== given[0]);
            return result;
        };
        this.#undo.push(() => (isOwn ? (cometd.unsubscribe = original) : delete cometd.unsubscribe));
    }

    #watched(listener, handle) {
        const extension = this;
        return function watched(message) {
            const handling = extension.#handling(message);
            if (handling) {
                handling.isTaken = true;
            }
            const returned = listener.call(this, message);
            if (handling && typeof returned?.then === "function") {
                extension.#await(returned, handling, (reason) => extension.#complain(reason, handle(), message));
            }
            return returned;
        };
    }

    #await(promise, handling, complain) {
        handling.begin();
        promise.then(
            () => handling.end(),
            (reason) => {
                handling.failed(reason);
                handling.end();
                complain(reason);
            },
        );
    }

    /** Treats a rejected promise like an exception, as the client treats those. */
    #complain(reason, handle, message) {
        this.#isComplaining = true;
        try {
            this.#cometd.onListenerException(reason, handle, handle.listener, message);
        } catch (failure) {
            this.#cometd._info("Exception during execution of listener exception handler", handle, failure);
        } finally {
            this.#isComplaining = false;
        }
    }

    /** Wraps the handler of the application, which is still called. */
    #hearExceptions() {
        const cometd = this.#cometd;
        let handler = cometd.onListenerException;
        Object.defineProperty(cometd, "onListenerException", {
            configurable: true,
            get: () => this.#exceptionHandler(handler),
            set: (value) => {
                handler = value;
            },
        });
        this.#undo.push(() => {
            delete cometd.onListenerException;
            if (handler !== cometd.onListenerException) {
                cometd.onListenerException = handler;
            }
        });
    }

    #exceptionHandler(handler) {
        return (reason, handle, isListener, message) => {
            if (!this.#isComplaining) {
                this.#handling(message)?.failed(reason);
            }
            if (typeof handler === "function") {
                handler.call(this.#cometd, reason, handle, isListener, message);
            } else {
                this.#cometd._info("Exception during execution of listener", handle, message, reason);
            }
        };
    }

    #handling(message) {
        // Also during a handshake: statuses of that time go with the next connect.
        return this.#ledger.handling(message?.ext?.update?.id);
    }
}

/** Whether a listener of this channel or wildcard is called with the messages of that channel. */
function hears(pattern, channel) {
    if (pattern.endsWith("/**")) {
        return channel.startsWith(pattern.slice(0, -2));
    }
    const isBelow = pattern.endsWith("/*") && channel.startsWith(pattern.slice(0, -1));
    return pattern === channel || (isBelow && !channel.slice(pattern.length - 1).includes("/"));
}

/** The `dispatcher` that the page asks for, with the defaults above. A delay that the application sets does not grow. */
function retrying(asked) {
    const own = asked?.delay === undefined ? {} : {factor: 1, maxDelay: undefined};
    return Object.fromEntries(Object.entries({...RETRYING, ...own, ...asked}).filter(([, value]) => value !== undefined));
}

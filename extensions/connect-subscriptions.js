/**
 * The subscriptions of a connection, which outlive its sessions: the client forgets them at each handshake, and those that it could
 * not send. One channel is one subscription at the server, however many listeners the page has for it. Knows nothing of why there is
 * a session or none.
 */

import {isSame} from "./connect-options.js";
import {copied} from "./encodable.js";
import {pause} from "./pauses.js";
import {ReplyError, isTemporary} from "./replies.js";

const DELAYS = {minDelay: 2000, maxDelay: 10000}; // between two attempts, in ms
const IDLE = "idle"; // the server is to be asked
const ASKED = "asked";
const CONFIRMED = "confirmed";
const REMEMBERED = 10000; // ids of a listener

export class Subscriptions {
    #cometd;
    #ended;
    #channels = new Map(); // {options, state, reply, listeners} by name; the reply is the last that confirmed it
    #left = new Set(); // channels of which the server does not know yet that they have no listener
    #hasSession = false;
    #timer = null;
    #failures = 0; // in a row

    /** @param ended called with {subscription, errorCode, message} when the server does not continue a subscription */
    constructor(cometd, ended) {
        this.#cometd = cometd;
        this.#ended = ended;
    }

    /**
     * Subscribes now, and in each session to come. `start` makes the client do it: it is called with the fields of the message and a
     * callback, and returns the handle. Resolves with the reply when the server has confirmed it for the first time.
     */
    add(listener, channel, start, fields = {}) {
        const options = copied(fields, "fields"); // all subscriptions travel in one request, which must be JSON
        const known = this.#channels.get(channel);
        if (known && !isSame(known.options, options)) {
            throw new TypeError(`the page has a subscription to ${channel} with other options: ${JSON.stringify(known.options)}`);
        }
        const found = known ?? {options, state: IDLE, reply: null, listeners: new Map()};
        this.#channels.set(channel, found);
        return new Promise((resolve, reject) => {
            found.listeners.set(listener, {start, handle: null, resolve, reject});
            if (this.#hasSession) {
                this.#send(channel, found);
            }
        });
    }

    /** Ends the subscription of this listener. Resolves when the server knows, or cannot be told now. */
    async remove(listener, channel, reason) {
        const found = this.#channels.get(channel);
        const entry = found?.listeners.get(listener);
        if (!entry) {
            return;
        }
        found.listeners.delete(listener);
        entry.reject(reason); // no matter if it was confirmed before
        if (found.listeners.size > 0) {
            if (entry.handle) {
                this.#cometd.removeListener(entry.handle);
            }
            return;
        }
        this.#channels.delete(channel);
        if (found.state !== IDLE || found.reply) {
            this.#left.add(channel);
            await this.#leave(channel, entry.handle);
        }
    }

    /** There is a session, a new one or the same: the client has forgotten all subscriptions. */
    restore() {
        this.#hasSession = true;
        for (const found of this.#channels.values()) {
            found.state = IDLE;
            found.listeners.forEach((entry) => {
                entry.handle = null;
            });
        }
        this.#sendAll();
    }

    /** The server is reached: what a lost connection has left undone is done now. */
    resume() {
        this.#hasSession = true;
        this.#sendAll();
    }

    /** The server is not reached, or there is no session. */
    pause() {
        this.#hasSession = false;
    }

    /** The server has ended the subscription to this channel: the client has removed its listeners. */
    end({subscription, errorCode, message}) {
        const reply = {successful: false, ext: {subscribe: {errorCode, message}}};
        this.#channels.get(subscription)?.listeners.forEach(({reject}) => reject(new ReplyError(subscription, reply)));
        this.#channels.delete(subscription);
        this.#ended({subscription, errorCode, message});
    }

    /** There will be no session any more, for the reason in this failed reply. */
    close(reply) {
        this.#cancel();
        this.#hasSession = false;
        this.#channels.forEach(({listeners}, channel) => listeners.forEach(({reject}) => reject(new ReplyError(channel, reply))));
        this.#channels.clear();
        this.#left.clear();
    }

    /** Asks for what the server has not confirmed. */
    #sendAll() {
        this.#cancel();
        if (this.#hasSession && !this.#cometd.isDisconnected()) {
            this.#cometd.batch(() => {
                this.#left.forEach((channel) => this.#leave(channel));
                this.#channels.forEach((found, channel) => this.#send(channel, found));
            });
        }
    }

    #send(channel, found) {
        const isFirst = found.state === IDLE;
        const props = Object.keys(found.options).length ? {ext: {subscribe: found.options}} : {};
        if (isFirst) {
            found.state = ASKED;
            this.#left.delete(channel);
        }
        let answered = isFirst ? (reply) => this.#answered(channel, found, reply) : () => {};
        found.listeners.forEach((entry, listener) => {
            try {
                entry.handle ??= entry.start(props, answered);
            } catch (error) { // such as of a channel that cannot be one: the others are sent all the same
                found.listeners.delete(listener);
                entry.reject(error);
                return;
            }
            answered = () => {}; // the client sends one message for all of them
            if (found.state === CONFIRMED) {
                entry.resolve(found.reply);
            }
        });
        if (found.listeners.size === 0) {
            this.#channels.delete(channel);
        }
    }

    #answered(channel, found, reply) {
        if (this.#channels.get(channel) !== found) {
            return;
        }
        if (reply.successful) {
            found.state = CONFIRMED;
            found.reply = reply;
            this.#failures = 0;
            found.listeners.forEach(({resolve}) => resolve(reply));
            return;
        }
        // The client has removed the listeners.
        found.state = IDLE;
        found.listeners.forEach((entry) => {
            entry.handle = null;
        });
        if (isTemporary(reply)) {
            this.#timer ??= setTimeout(() => this.#sendAll(), pause(this.#failures++, DELAYS));
            return;
        }
        const error = new ReplyError(channel, reply);
        this.#channels.delete(channel);
        found.listeners.forEach(({reject}) => reject(error));
        if (found.reply) {
            this.#ended({subscription: channel, errorCode: error.errorCode, message: error.message});
        }
    }

    #cancel() {
        clearTimeout(this.#timer);
        this.#timer = null;
    }

    #leave(channel, handle = null) {
        return new Promise((resolve) => {
            if (this.#cometd.isDisconnected() || !this.#hasSession) {
                resolve();
                return;
            }
            // The client takes a handle that it does not know, too: it sends the message, and removes nothing.
            this.#cometd.unsubscribe(handle ?? {channel, id: 0}, (reply) => {
                if (reply.successful || !isTemporary(reply)) {
                    this.#left.delete(channel);
                }
                resolve();
            });
        });
    }
}

/** The function, which is called with a message of a history unless it had that before, in whichever session. */
export function fresh(listener) {
    const had = new Set();
    const note = (id) => {
        had.add(id);
        if (had.size > REMEMBERED) {
            had.delete(had.values().next().value);
        }
    };
    return (message) => {
        const {id, initial} = message.ext?.update ?? {};
        if (initial && had.has(id)) {
            return undefined;
        }
        const result = listener(message);
        if (id !== undefined) {
            Promise.resolve(result).then(() => note(id), () => {}); // what it rejects may be sent again
        }
        return result;
    };
}

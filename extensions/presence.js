/**
 * The presence of a channel, as a page sees it: its members, and what changes.
 *
 *     const presence = connection.presence("/room", {data: {name: "Joe"}});
 *     presence.on((changes) => changes.forEach(({change, member}) => console.log(change, member.id)));
 *     await presence.ready;
 *     console.log(presence.members);
 *     await presence.update({name: "Joe", typing: true});
 *     presence.close();
 *
 * A page has one session, so it is present on a channel once: several presences of one channel share what follows it.
 */

import {callBack} from "./callbacks.js";
import {pause} from "./pauses.js";
import {ReplyError, codeOf, isTemporary} from "./replies.js";

const CHANGES = "/__sys__presence"; // stands before the name of a channel in the name of that on which its members change
const CALL_MS = 10000;
const DELAYS = {minDelay: 1000, maxDelay: 10000}; // between two attempts, in ms
const NO_MEMBERS = Object.freeze([]);
const CLOSED = {error: "the presence was closed", failure: {}}; // no reply of the server
const following = new WeakMap(); // by connection: what follows each channel, by its name

/** The server refused what was asked, or it is unknown whether it was done: then `errorCode` is empty. */
export class PresenceError extends Error {
    constructor(channel, reply) {
        const {data, error, failure} = reply;
        super(`${channel}: ${data?.message ?? error ?? "the connection was lost"}`);
        this.name = "PresenceError";
        this.errorCode = data?.errorCode ?? (failure || isTemporary(reply) ? "" : codeOf(reply));
    }
}

/** The presence of a channel, until `close`. */
export class Presence {
    #follower;
    #listeners = new Set();
    #isClosed = false;

    constructor(connection, channel, {enter = true, data = null} = {}) {
        if (typeof channel !== "string" || !channel.startsWith("/")) {
            throw new TypeError(`channel is the name of a channel, such as "/room", not ${String(channel)}`);
        }
        const channels = following.get(connection) ?? following.set(connection, new Map()).get(connection);
        this.channel = channel;
        this.#follower = channels.get(channel) ?? new Follower(connection, channel, () => channels.delete(channel));
        channels.set(channel, this.#follower);
        const call = (listener, changes) => callBack(`a listener of the presence of ${channel}`, listener, changes);
        this.#follower.add(this, (changes) => [...this.#listeners].forEach((listener) => call(listener, changes)));
        /** Resolves when the members are listed, and rejects if the server refuses that. No caller must handle it. */
        this.ready = enter ? this.#follower.enter(this, data) : this.#follower.settled();
        this.ready.catch(() => {});
    }

    /** The members, each {id, sessions, data}: another array after each change. */
    get members() {
        return this.#follower.members;
    }

    /** The id of this page's member; null while the page is not present. */
    get id() {
        return this.#follower.id;
    }

    /** Why the server refuses the presence of the channel; null if it does not. */
    get error() {
        return this.#follower.error;
    }

    /**
     * Calls the listener when anything has changed, with a list of {change, member}: `change` is "join", "update" or "leave". The list
     * is empty if no member has changed. Returns what ends that.
     */
    on(listener) {
        const call = (changes) => listener(changes);
        this.#listeners.add(call);
        return () => {
            this.#listeners.delete(call);
        };
    }

    /** Lets this page be present, or replaces its data. Resolves when the server has them, also after a lost connection. */
    async enter(data = null) {
        this.#checkOpen();
        return this.#follower.enter(this, data);
    }

    /** Replaces the data of this page, which is present. */
    async update(data) {
        this.#checkOpen();
        if (!this.#follower.enters) {
            throw new TypeError(`${this.channel}: this page is not present: enter first`);
        }
        return this.#follower.enter(this, data);
    }

    /** Lets this page not be present, unless another presence of the channel does. The members are listed all the same. */
    async leave() {
        this.#checkOpen();
        return this.#follower.leave(this);
    }

    /** Leaves, and lists the members no more. What is asked for after it is rejected. */
    close() {
        this.#isClosed = true;
        this.#listeners.clear();
        this.#follower.remove(this);
    }

    #checkOpen() {
        if (this.#isClosed) {
            throw new PresenceError(this.channel, CLOSED);
        }
    }
}

/** Follows one channel for all presences of it. */
class Follower {
    members = NO_MEMBERS;
    id = null;
    error = null;
    #connection;
    #channel;
    #forget;
    #users = new Map(); // presences: what tells them of changes
    #present = new Set(); // those that let the page be present
    #wanted = null; // {data} to be present with
    #has = null; // what the server has of that
    #place = {epoch: "", seq: 0};
    #isListed = false;
    #isSubscribed = false;
    #isLost = false; // there is no subscription to the changes, and will be none
    #isEnded = false;
    #isBusy = false;
    #events = []; // that came meanwhile
    #waiting = [];
    #failures = 0;
    #timer = null;
    #endings = [];
    #leaving = new AbortController();

    constructor(connection, channel, forget) {
        this.#connection = connection;
        this.#channel = channel;
        this.#forget = forget;
        const {cometd} = connection;
        const replies = cometd?.addListener("/meta/subscribe", (reply) => this.#subscribed(reply));
        this.#endings = [
            () => replies && cometd.removeListener(replies),
            connection.on("status", ({state, reason, isFinal}) => {
                if (isFinal) {
                    this.#lose(new PresenceError(channel, {data: reason})); // there will be no session any more
                } else if (state === "connected") {
                    this.#settle();
                }
            }),
            connection.on("ended", ({subscription, ...data}) => subscription === CHANGES + channel && this.#lose(new PresenceError(channel, {data}))),
        ];
        connection.subscribe(CHANGES + channel, ({data}) => this.#take(data), {signal: this.#leaving.signal}).catch((error) => this.#lose(error));
    }

    /** Whether the page is present, or will be. */
    get enters() {
        return this.#wanted !== null;
    }

    add(presence, tell) {
        this.#users.set(presence, tell);
    }

    remove(presence) {
        this.#users.delete(presence);
        this.#present.delete(presence);
        // A component that is mounted again at once, as React does in StrictMode, finds all as it was.
        setTimeout(() => (this.#users.size > 0 ? this.leave(presence) : this.#end()).catch(() => {}), 0);
    }

    enter(presence, data) {
        this.#present.add(presence);
        this.#wanted = {data};
        return this.settled();
    }

    leave(presence) {
        this.#present.delete(presence);
        if (this.#present.size === 0) {
            this.#wanted = null;
        }
        return this.settled();
    }

    /** Resolves when the server has what this page wants, and the members are listed. */
    settled() {
        if (this.#isLost) {
            return Promise.reject(this.error);
        }
        return new Promise((resolve, reject) => {
            this.#waiting.push({resolve, reject});
            this.#settle();
        });
    }

    async #end() {
        if (this.#isEnded) {
            return;
        }
        this.#isEnded = true;
        this.#isSubscribed = false;
        this.#wanted = null;
        this.#forget();
        this.#endings.forEach((end) => end());
        clearTimeout(this.#timer);
        this.#leaving.abort(new ReplyError(this.#channel, CLOSED));
        const isPresent = this.#has !== null;
        this.#has = null;
        this.#waiting.splice(0).forEach(({reject}) => reject(new PresenceError(this.#channel, CLOSED)));
        if (isPresent && this.#connection.status.state === "connected") {
            await this.#call("leave");
        }
    }

    /** The server has confirmed the subscription to the changes, in this session or another: what it has is not known. */
    #subscribed({successful, subscription}) {
        if (successful && !this.#isEnded && [subscription].flat().includes(CHANGES + this.#channel)) {
            this.#isSubscribed = true;
            this.#begin();
        }
    }

    #begin() {
        this.#has = null;
        this.#isListed = false;
        this.#settle();
    }

    /** Brings the server to what this page wants, and lists the members if they are not known. */
    async #settle() {
        if (this.#isBusy || !this.#isSubscribed) {
            return;
        }
        this.#isBusy = true;
        clearTimeout(this.#timer);
        try {
            while (!this.#isEnded && (this.#has !== this.#wanted || !this.#isListed)) {
                await (this.#has === this.#wanted ? this.#list() : this.#bring(this.#wanted));
            }
            this.#failures = 0;
            this.error = null;
            this.#tell([]);
            this.#waiting.splice(0).forEach(({resolve}) => resolve());
        } catch (error) {
            this.#failed(error);
        } finally {
            this.#isBusy = false;
            this.#events.splice(0).forEach((event) => this.#take(event));
        }
    }

    async #bring(wanted) {
        const {id} = await this.#call(wanted ? "enter" : "leave", wanted?.data);
        this.#has = wanted;
        this.id = wanted && id;
    }

    async #list() {
        this.#isListed = true;
        const {epoch, seq, members} = await this.#call("members").catch((error) => {
            this.#isListed = false;
            throw error;
        });
        this.#place = {epoch, seq};
        const listed = new Set(members.map(({id}) => id));
        const gone = this.members.filter(({id}) => !listed.has(id)).map(({id}) => ({change: "leave", id}));
        this.#apply([...gone, ...members.map((member) => ({change: "join", ...member}))]);
    }

    #failed(error) {
        if (error.errorCode) {
            this.#refused(error);
        } else {
            this.#isListed = false;
            this.#timer = setTimeout(() => this.#settle(), pause(this.#failures++, DELAYS));
        }
    }

    #lose(error) {
        if (!this.#isEnded) {
            this.#isLost = true;
            this.#isSubscribed = false;
            this.#refused(error);
        }
    }

    #refused(error) {
        this.error = error;
        this.#has = this.#wanted; // it is asked again in another session, or for other data
        this.#tell([]);
        this.#waiting.splice(0).forEach(({reject}) => reject(error));
    }

    #take(event) {
        const {epoch, seq} = this.#place;
        if (this.#isBusy) {
            this.#events.push(event);
        } else if (event.reset) {
            this.#begin();
        } else if (event.epoch !== epoch || event.seq > seq + 1) {
            this.#isListed = false;
            this.#settle();
        } else if (event.seq === seq + 1) {
            this.#place = {epoch, seq: event.seq};
            this.#apply(event.changes);
        }
    }

    /** Changes the members, and tells what is another now than before. */
    #apply(changes) {
        const members = new Map(this.members.map((member) => [member.id, member]));
        const told = [];
        for (const {change, id, sessions, data} of changes) {
            const before = members.get(id);
            if (change === "leave") {
                members.delete(id);
                told.push(before && {change, member: before});
            } else {
                const member = Object.freeze({id, sessions, data});
                members.set(id, member);
                told.push(!before ? {change: "join", member} : isSame(before, member) ? null : {change: "update", member});
            }
        }
        this.members = Object.freeze([...members.values()]);
        this.#tell(told.filter(Boolean));
    }

    #tell(changes) {
        this.#users.forEach((tell) => tell(changes));
    }

    #call(action, data = null) {
        return new Promise((resolve, reject) => {
            this.#connection.cometd.remoteCall("presence", {channel: this.#channel, action, data}, CALL_MS, (reply) =>
                reply.successful ? resolve(reply.data) : reject(new PresenceError(this.#channel, reply)),
            );
        });
    }
}

function isSame(one, other) {
    return JSON.stringify(one) === JSON.stringify(other);
}

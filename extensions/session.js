/**
 * The browser's half of named sessions: names the session of this page, resumes it after a reload, and leaves it to the next tab.
 *
 *     import {SessionExtension} from "/extensions/session.js";
 *     const session = new SessionExtension({name: "client/joe/1"}, {storage: window.sessionStorage});
 *     cometd.registerExtension("session", session);
 *
 * Every handshake carries `ext.session`. The reply contains `resume`, a secret that only the last login of a session
 * has. The next handshake sends it, and takes over the session with its subscriptions and its queue. In a `storage`, it
 * survives a reload of the page. The `nonce`, new in each handshake, lets the server distinguish a copy that a proxy sends from
 * the handshake of another client.
 *
 * A page subscribes after each handshake, because the client forgets its subscriptions. If the session was kept, it has them: what this
 * page has subscribed before continues, and no history comes again.
 *
 * With `waits`, a page whose name another one has tries again until that one is closed. A page that goes leaves its secret to the
 * next one of its name in this browser, in which the session continues at once.
 */

import {callBack} from "./callbacks.js";

const NAME_PAUSE = 50; // ms
const WAIT = 2000; // ms between two attempts of a tab that waits for its name
const SETTLED = 1000; // ms after which a page that went has not come back by a reload
const LEFT_MAX = 60000; // ms for which what it has left is used
const HELD_MAX = 1e9; // ms: the client adds pauses to it, and a browser ends a timer above 2 ** 31 - 1 ms at once
const IDENTICAL = "user.configuration.identicalClient";

/** Returns a random string for one handshake. (Only secure origins have crypto.randomUUID.) */
function newNonce() {
    const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
    return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class SessionExtension {
    #asked;
    #storage;
    #key;
    #changed;
    #resume = null;
    #reply = null;
    #refusal = null;
    #subscribes = new Set(); // ids of the subscribes of this login without a reply
    #begun = new Set(); // channels and patterns to which this client has subscribed the session
    #waits;
    #place = null; // where in localStorage a page of this name leaves {resume, at} to the next one

    /**
     * @param asked the fields of `ext.session`: name, token, persistent, timeout and so on; or a function that
     *     returns them, called at each handshake, for tokens that change
     * @param storage where `resume` is kept, such as window.sessionStorage; without it, `resume` is in memory only
     * @param key the name of `resume` in the storage
     * @param changed called with this extension after each reply to a handshake, and when another client takes over the session
     * @param waits whether this client tries again while another one has its name, and takes the session over when that has gone
     */
    constructor(asked = {}, {storage = null, key = "crewel.session", changed = () => {}, waits = false} = {}) {
        if (asked === null || Array.isArray(asked) || !["object", "function"].includes(typeof asked)) {
            const given = typeof asked === "bigint" ? String(asked) : JSON.stringify(asked) ?? typeof asked;
            throw new TypeError(`a SessionExtension takes the fields of the session, such as {name: "client/joe/1"}, not ${given}`);
        }
        this.#asked = typeof asked === "function" ? asked : () => asked;
        this.#storage = storage;
        this.#key = key;
        this.#changed = changed;
        this.#waits = waits;
        this.#resume = this.#read();
    }

    registered() {
        globalThis.addEventListener?.("pagehide", this.#leave);
        globalThis.addEventListener?.("pageshow", this.#return);
    }

    unregistered() {
        globalThis.removeEventListener?.("pagehide", this.#leave);
        globalThis.removeEventListener?.("pageshow", this.#return);
    }

    /** `ext.session` of the last successful handshake reply, with name, reconnected, queued and more; or null. */
    get reply() {
        return this.#reply;
    }

    /** Why there is no session: why the server refused the last handshake, or that another client has taken over the session, as
     * {errorCode, message}; null if there is one. */
    get refusal() {
        return this.#refusal;
    }

    /** The public name of the session, or null. */
    get name() {
        return this.#reply?.name ?? null;
    }

    /** The secret with which a handshake takes over the session, or null. */
    get resume() {
        return this.#resume;
    }

    /** Whether this client waits for another one that has its name. */
    get isWaiting() {
        return this.#waits && this.#refusal?.errorCode === IDENTICAL;
    }

    /** Makes the next handshake open a new session. */
    forget() {
        this.#keep(null);
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            const asked = callBack("the function of a SessionExtension", this.#asked); // without the fields, the secret takes the session over
            if (typeof asked?.then === "function") {
                console.error("SessionExtension: the function must return the fields, not a promise: fetch the token before the handshake");
            }
            // What waits takes nothing from another client, or each would take the session back from the other, without end.
            const waits = this.#waits ? {reconnectSameClientOnly: true} : {};
            const session = {...message.ext?.session, ...asked, ...waits, nonce: newNonce()};
            this.#inherit(session.name);
            if (this.#resume !== null) {
                session.resume = this.#resume;
            }
            message.ext = {...message.ext, session};
            this.#subscribes.clear();
        } else if (message.channel === "/meta/subscribe") {
            this.#subscribes.add(message.id);
            if (this.#begun.has(message.subscription) && message.ext?.subscribe) {
                message.ext = {...message.ext, subscribe: continued(message.ext.subscribe)};
            }
        } else if (message.channel === "/meta/unsubscribe") {
            this.#begun.delete(message.subscription);
        }
        return message;
    }

    incoming(message) {
        if (message.channel === "/meta/handshake") {
            this.#answered(message);
            callBack("changed", this.#changed, this);
        } else if (message.channel === "/meta/connect" && message.error?.endsWith(IDENTICAL)) {
            // Another client, such as a duplicate of this tab, has taken over the session. This client stops, unless it waits.
            if (this.#waits) {
                this.#keep(null);
                message.advice = {...message.advice, reconnect: "handshake", interval: WAIT};
            }
            this.#reply = null;
            this.#refusal = {errorCode: IDENTICAL, message: "another client has taken over this session"};
            callBack("changed", this.#changed, this);
        } else if (message.channel === "/meta/disconnect" && message.successful) {
            this.#keep(null);
        } else if (message.channel === "/meta/subscribe") {
            return this.#subscribed(message);
        } else if (message.ext?.update?.state === "ERASED") {
            this.#begun.delete(message.channel);
        }
        return message;
    }

    #subscribed(message) {
        if (message.id === undefined) {
            this.#begun.delete(message.subscription);
            return message; // the server has ended a subscription, so its listeners must be removed
        }
        const isOfLogin = this.#subscribes.delete(message.id);
        if (isOfLogin && message.successful) {
            this.#begun.add(message.subscription);
        }
        // The client removes the listeners of the channel when a subscribe fails, even one of the previous login. The
        // session continues, so later messages would be acknowledged without a listener.
        return isOfLogin || message.successful ? message : {...message, subscription: undefined};
    }

    #answered(message) {
        const told = message.ext?.session;
        if (message.successful) {
            this.#reply = told ?? null;
            this.#refusal = null;
            if (told?.reconnected !== true) {
                this.#begun.clear();
            }
            this.#keep(told?.resume ?? null);
            return;
        }
        this.#reply = null;
        this.#refusal = told?.errorCode ? told : {errorCode: "", message: message.error ?? ""};
        if (told?.errorCode === IDENTICAL) {
            // The secret is useless now: another client has taken over the session.
            this.#keep(null);
            // Its last client is gone: the name is free after this time unless that client returns. Otherwise it is there.
            const free = Number.isInteger(told.retryAfter) ? Math.min(told.retryAfter + NAME_PAUSE, HELD_MAX) : Infinity;
            const interval = this.#waits ? Math.min(free, WAIT) : free;
            if (interval < Infinity) {
                message.advice = {reconnect: "handshake", interval};
            }
        }
    }

    // The pages of this browser that have one name, one after the other

    #leave = () => {
        if (this.#place !== null && this.#reply !== null && this.#resume !== null) {
            put(this.#place, JSON.stringify({resume: this.#resume, at: Date.now()}));
        }
    };

    /** The browser has kept this page, and shows it again as it was. */
    #return = ({persisted}) => persisted && this.#takeBack();

    #takeBack() {
        if (left(this.#place)?.resume === this.#resume) {
            put(this.#place, null);
        }
    }

    #inherit(name) {
        this.#place = this.#waits && typeof name === "string" ? `${this.#key} ${name}` : null;
        if (this.#resume !== null) {
            this.#takeBack();
            return;
        }
        const {resume = null, at = 0} = left(this.#place) ?? {};
        const ago = Date.now() - at;
        if (resume !== null && ago >= SETTLED) {
            put(this.#place, null);
            this.#keep(ago < LEFT_MAX ? resume : null);
        }
    }

    #read() {
        try {
            return this.#storage?.getItem(this.#key) ?? null;
        } catch {
            return null; // a browser may forbid storage: then the secret lives as long as the page
        }
    }

    #keep(resume) {
        try {
            if (resume !== null) {
                this.#storage?.setItem(this.#key, resume);
            } else if (this.#read() === this.#resume) { // and not that of another client of this page
                this.#storage?.removeItem(this.#key);
            }
        } catch {
            // As above.
        }
        this.#resume = resume;
        if (resume === null) {
            this.#begun.clear(); // another client may have had it when it comes back
        }
    }
}

/** These fields of a subscribe, for a session that has the subscription: nothing of a history comes again. */
function continued(options) {
    const fields = {...options, initialUpdate: false};
    delete fields.history;
    delete fields.since;
    return fields;
}

/** What a page has left here, as {resume, at}; or null. */
function left(place) {
    try {
        return place === null ? null : JSON.parse(window.localStorage.getItem(place));
    } catch {
        return null; // a browser may forbid storage, and there may be no browser
    }
}

/** Leaves this here, or, with null, nothing. */
function put(place, value) {
    try {
        if (value === null) {
            window.localStorage.removeItem(place);
        } else {
            window.localStorage.setItem(place, value);
        }
    } catch {
        // As above: then the next page waits until the server gives the name up.
    }
}

/**
 * The browser's half of names: who this page is, and how it takes its session over again.
 *
 *     import {SessionExtension} from "/extensions/session.js";
 *     const session = new SessionExtension({name: "client/joe/1"}, {storage: window.sessionStorage});
 *     cometd.registerExtension("session", session);
 *
 * Every handshake carries `ext.session`. The server's answer holds `resume`, a secret that only the last login of a session
 * has; the next handshake shows it, and so takes over the session with its subscriptions and all that waits in it. Kept
 * in a `storage`, it lives through a reload of the page. By the `nonce`, which is another one in each handshake, the server
 * tells a copy that a proxy sends from another client.
 */

const NAME_PAUSE = 50; // ms

/** Returns what no other handshake has. (crypto.randomUUID is for secure origins only.) */
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
    #subscribes = new Set(); // ids of the subscribes of this login that are not answered yet

    /**
     * @param asked the fields of `ext.session`: name, token, persistent, timeout and so on; or a function that
     *     returns them, called at each handshake, for tokens that change
     * @param storage where `resume` is kept, such as window.sessionStorage; nowhere without
     * @param key under which name it is kept there
     * @param changed called with this extension after each answer to a handshake
     */
    constructor(asked = {}, {storage = null, key = "crewel.session", changed = () => {}} = {}) {
        this.#asked = typeof asked === "function" ? asked : () => asked;
        this.#storage = storage;
        this.#key = key;
        this.#changed = changed;
        this.#resume = this.#read();
    }

    /** What the server said of the session when it granted the last handshake, such as name, reconnected, queued; or null. */
    get reply() {
        return this.#reply;
    }

    /** Why the last handshake was refused: {errorCode, message}; null if it was granted. */
    get refusal() {
        return this.#refusal;
    }

    /** The public name of the session, or null. */
    get name() {
        return this.#reply?.name ?? null;
    }

    /** The secret that takes the session over, or null. */
    get resume() {
        return this.#resume;
    }

    /** Lets the next handshake begin a new session. */
    forget() {
        this.#keep(null);
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            const resume = this.#resume === null ? {} : {resume: this.#resume};
            const session = {...message.ext?.session, ...this.#asked(), ...resume, nonce: newNonce()};
            message.ext = {...message.ext, session};
            this.#subscribes.clear();
        } else if (message.channel === "/meta/subscribe") {
            this.#subscribes.add(message.id);
        }
        return message;
    }

    incoming(message) {
        if (message.channel === "/meta/handshake") {
            this.#answered(message);
            this.#changed(this);
        } else if (message.channel === "/meta/disconnect" && message.successful) {
            this.#keep(null);
        } else if (message.channel === "/meta/subscribe" && message.id === undefined) {
            return message; // the server has ended a subscription: then the listeners have to go
        } else if (message.channel === "/meta/subscribe" && !this.#subscribes.delete(message.id) && !message.successful) {
            // The client takes the listeners of the channel away when a subscribe fails, also when that is one of the login
            // before. The session continues, so what comes then would be acknowledged without a listener.
            return {...message, subscription: undefined};
        }
        return message;
    }

    #answered(message) {
        const told = message.ext?.session;
        if (message.successful) {
            this.#reply = told ?? null;
            this.#refusal = null;
            this.#keep(told?.resume ?? null);
            return;
        }
        this.#reply = null;
        this.#refusal = told?.errorCode ? told : {errorCode: "", message: message.error ?? ""};
        if (told?.errorCode === "user.configuration.identicalClient") {
            // What was kept is good for nothing: somebody else is this session by now.
            this.#keep(null);
            if (Number.isInteger(told.retryAfter)) {
                // Its last client is gone, and the name is free by then unless that comes back.
                message.advice = {reconnect: "handshake", interval: told.retryAfter + NAME_PAUSE};
            }
        }
    }

    #read() {
        try {
            return this.#storage?.getItem(this.#key) ?? null;
        } catch {
            return null; // a browser may forbid it: then it is kept as long as the page
        }
    }

    #keep(resume) {
        this.#resume = resume;
        try {
            if (resume === null) {
                this.#storage?.removeItem(this.#key);
            } else {
                this.#storage?.setItem(this.#key, resume);
            }
        } catch {
            // As above.
        }
    }
}

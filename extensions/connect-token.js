/**
 * The token of a connection: a value, or a function that is asked for one. It is asked before a handshake that needs another one,
 * and, while the page is connected, before the token expires. Knows nothing of the client.
 */

import {LONGEST_MS} from "./pauses.js";

const USED = 0.75; // of the time that is left, until the function is asked again
const SOON_MS = 1000; // a token that expires within this time is not sent any more
const LIMIT_MS = 10000; // for which the function is waited for

/** When a JSON Web Token expires, in milliseconds since 1970; null if that is not said. It is not verified: the server does that. */
export function expiryOf(token) {
    try {
        const {exp} = JSON.parse(globalThis.atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));
        return Number.isFinite(exp) ? exp * 1000 : null;
    } catch {
        return null;
    }
}

export class Token {
    #source;
    #value;
    #sent = null; // what the last handshake showed
    #isRefused = false;
    #asking = null; // a promise
    #timer;

    /** @param source a token, a function that returns one or a promise of one, or undefined */
    constructor(source) {
        this.#source = source;
        this.#value = typeof source === "function" ? undefined : source;
    }

    /** Whether there may be another token when this one is refused. */
    get isAsked() {
        return typeof this.#source === "function";
    }

    /** Returns the token for a handshake that is sent now, or undefined. */
    show() {
        this.#sent = this.#value;
        return this.#value;
    }

    /** The server has refused the token that it was shown. */
    refuse() {
        this.#isRefused ||= this.#value === this.#sent;
    }

    /** Resolves when there is a token to show; rejects with what the function throws, or when it takes too long. */
    async ready() {
        if (this.isAsked && !this.#isFresh()) {
            await this.#ask();
        }
    }

    /** From now on, asks before the token expires. */
    keepFresh() {
        clearTimeout(this.#timer);
        const left = (expiryOf(this.#value) ?? 0) - Date.now();
        if (this.isAsked && left > SOON_MS) {
            // The server asks for a handshake when the token that it has expires: this one is there by then.
            this.#timer = setTimeout(() => this.#renew(), Math.min(left * USED, LONGEST_MS));
        }
    }

    /** Asks no more until a handshake needs a token. */
    rest() {
        clearTimeout(this.#timer);
        this.#timer = undefined;
    }

    #isFresh() {
        const expiry = expiryOf(this.#value);
        return !this.#isRefused && expiry !== null && expiry - Date.now() > SOON_MS;
    }

    async #renew() {
        try {
            await this.#ask();
        } catch {
            // The one that is there is still good for some time.
        }
        if (this.#timer !== undefined) {
            this.keepFresh();
        }
    }

    #ask() {
        this.#asking ??= this.#take().finally(() => {
            this.#asking = null;
        });
        return this.#asking;
    }

    async #take() {
        const given = await inTime(this.#source());
        if (typeof given !== "string" || !given) {
            throw new TypeError(`token returns a string, or a promise of one, not ${typeof given}`);
        }
        this.#value = given;
        this.#isRefused = false;
    }
}

/** What this is, or resolves to; rejects if that takes too long. */
function inTime(answer) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`the function took longer than ${LIMIT_MS / 1000} s`)), LIMIT_MS);
    });
    return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

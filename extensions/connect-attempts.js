/**
 * The attempts of a client to reach its server: when the next one is made, over which transport and with which token, and what
 * came of the last one, the status. The client does the rest: it asks `onTransportFailure`, its own hook, what follows a
 * failure.
 */

import {pause} from "./pauses.js";

const HELD_MS = 1e9; // until the client is let proceed
const REFUSED_MAX_MS = 60000; // between two attempts that the server refuses
const UNREACHED = "no server, or http.allowed_origins lacks this page";
const AUTHENTICATION = "user.security.authentication.";
const HANDSHAKE = "/meta/handshake";
const LOST = "the connection was lost";
const OFFLINE = "this device is offline";
const ENDED = "the session was ended";
const NO_TRANSPORT = "the server offers none of the transports of this page";

/** What the page shows of its connection. `isFinal`: it is not tried again. */
export function statusOf(state, reason = null, isFinal = false) {
    return Object.freeze({state, reason, isFinal});
}

/** The status before there is an answer. */
export const CONNECTING = statusOf("connecting");

export class Attempts {
    #cometd;
    #session;
    #token;
    #delays;
    #changed;
    #status = CONNECTING;
    #failures = 0; // since the last successful connect
    #refusals = 0; // the same of handshakes that another token may remedy
    #losses = 0; // the same of sessions that have ended, or whose token has expired
    #due = null; // the attempt that is waited for: {make, stop, needsToken, timer}
    #undo; // ends the listening to the browser

    /**
     * @param cometd the client, configured
     * @param session its SessionExtension
     * @param token a Token
     * @param delays {minDelay, maxDelay} between two attempts, in ms
     * @param changed called with each new status
     */
    constructor(cometd, session, token, delays, changed) {
        this.#cometd = cometd;
        this.#session = session;
        this.#token = token;
        this.#delays = delays;
        this.#changed = changed;
        const policy = cometd.onTransportFailure;
        cometd.onTransportFailure = (message, failure, proceed) => {
            if (cometd.isDisconnected()) {
                policy.call(cometd, message, failure, proceed);
            } else if (message.channel === HANDSHAKE) {
                this.#handshakeFailed(message, failure, proceed);
            } else {
                policy.call(cometd, message, failure, (decided) => this.#connectFailed(message, decided, proceed));
            }
        };
        cometd.addListener("/meta/connect", ({successful}) => successful && this.#succeeded());
        cometd.addListener("/meta/disconnect", () => this.#finish({errorCode: "", message: ENDED}));
        this.#undo = heed({offline: () => this.#leave(), online: () => this.#return(), visible: () => this.#hurry()});
    }

    get status() {
        return this.#status;
    }

    /** Makes the first attempt after this promise, and when the code that runs now has ended: it may still configure the client. */
    start(before) {
        const due = {make: () => this.#cometd.handshake(), stop: () => {}, needsToken: true, timer: null};
        this.#due = due;
        before.then(() => this.#due === due && this.#make(due));
    }

    /** Makes no more attempts, and ends the session if there is one. */
    close(ended) {
        const due = this.#due;
        this.#undo();
        this.#cancel();
        this.#show(statusOf("closed"));
        due?.stop();
        if (this.#cometd.isDisconnected()) {
            ended();
        } else {
            this.#cometd.disconnect(ended);
        }
    }

    // What came of an attempt

    #succeeded() {
        this.#failures = this.#refusals = this.#losses = 0;
        const {state, isFinal} = this.#status;
        if (state !== "connected" && state !== "closed" && !isFinal) { // a connect that was held is answered after the end
            this.#show(statusOf("connected"));
            this.#token.keepFresh();
        }
    }

    #handshakeFailed(message, failure, proceed) {
        const {refusal, isWaiting} = this.#session;
        if (failure.cause === "failure") {
            const transport = this.#fallback();
            const again = {...failure, action: "handshake", transport: transport ?? this.#firstTransport()};
            this.#again(again, proceed, transport ? 0 : this.#unreached(UNREACHED));
        } else if (isWaiting) {
            this.#show(statusOf("waiting", refusal));
            this.#again(failure, proceed, 0); // after the interval that the extension advises
        } else if (failure.cause === "unsuccessful" && this.#mayRemedy(refusal)) {
            this.#again({...failure, action: "handshake"}, proceed, this.#refused(refusal));
        } else if (failure.action === "none") {
            this.#end(refusal ?? {errorCode: "", message: NO_TRANSPORT}, failure, proceed);
        } else {
            this.#show(statusOf("refused", refusal));
            this.#again(failure, proceed, this.#pause());
        }
    }

    #connectFailed(message, failure, proceed) {
        const {refusal, isWaiting} = this.#session;
        if (failure.cause === "failure") {
            this.#again(failure, proceed, this.#unreached(LOST));
        } else if (failure.action === "none") {
            this.#end(refusal ?? {errorCode: "", message: message.error ?? ""}, failure, proceed);
        } else if (isWaiting) {
            this.#show(statusOf("waiting", refusal));
            this.#again(failure, proceed, 0);
        } else {
            // The session is gone, or its token has expired.
            if (message.error?.includes(AUTHENTICATION)) {
                this.#token.refuse();
            }
            this.#show(CONNECTING);
            this.#again(failure, proceed, this.#losses++ === 0 ? 0 : this.#pause()); // the first time at once: the server is there
        }
    }

    /** Whether a function may give a token that the server accepts. */
    #mayRemedy(refusal) {
        return this.#token.isAsked && Boolean(refusal?.errorCode.startsWith(AUTHENTICATION));
    }

    /** The server does not accept the token: returns how long to wait until another one is tried. */
    #refused(refusal) {
        this.#token.refuse();
        const refusals = this.#refusals++;
        if (refusals === 0) {
            return 0; // it may have expired while the machine was asleep
        }
        this.#show(statusOf("refused", refusal));
        return pause(refusals, {...this.#delays, maxDelay: Math.max(this.#delays.maxDelay, REFUSED_MAX_MS)});
    }

    #unreached(message) {
        const why = globalThis.navigator?.onLine === false ? OFFLINE : message;
        this.#show(statusOf("offline", {errorCode: "", message: why}));
        return this.#pause();
    }

    #pause() {
        return pause(this.#failures++, this.#delays);
    }

    #end(reason, failure, proceed) {
        this.#finish(reason);
        proceed({...failure, action: "none"});
    }

    /** It is not tried again, and the first reason stays: the end of a session may arrive after the refusal of its connect. */
    #finish(reason) {
        this.#undo();
        this.#cancel(); // what is waited for would open a session that the page does not have
        if (!this.#status.isFinal) {
            this.#show(statusOf("refused", reason, true));
        }
    }

    #show(status) {
        const {state, reason, isFinal} = this.#status;
        if (state === "closed" || (status.state === state && status.reason?.message === reason?.message && status.isFinal === isFinal)) {
            return;
        }
        this.#status = status;
        if (status.state !== "connected") {
            this.#token.rest();
        }
        this.#changed(status);
    }

    // The browser

    /** It has no network. What is under way gets no answer, but the next attempt may: the server may be on this device. */
    #leave() {
        this.#show(statusOf("offline", {errorCode: "", message: OFFLINE}));
        this.#cometd.getTransport()?.abort();
    }

    /** It has a network again. */
    #return() {
        this.#failures = 0; // the server did not fail
        this.#hurry();
    }

    // The next attempt

    /** Makes it now, if the page waits because the server was not reached. */
    #hurry() {
        if (this.#due !== null && this.#status.state === "offline") {
            this.#make(this.#due);
        }
    }

    #again(failure, proceed, delay) {
        // Before a handshake, the client keeps what is published until it may proceed. Before a connect, it sends it.
        proceed({...failure, delay: HELD_MS});
        const needsToken = failure.action === "handshake";
        const due = {make: () => proceed({...failure, delay: 0}), stop: () => proceed({...failure, action: "none"}), needsToken, timer: null};
        this.#wait(due, delay);
    }

    #wait(due, delay) {
        this.#cancel();
        this.#due = due;
        due.timer = this.#cometd.setTimeout(() => this.#make(due), delay);
    }

    async #make(due) {
        this.#cometd.clearTimeout(due.timer);
        try {
            await (due.needsToken ? this.#token.ready() : undefined);
        } catch (error) {
            if (this.#due === due) {
                this.#wait(due, this.#unreached(`no token: ${error?.message ?? error}`));
            }
            return;
        }
        if (this.#due === due) {
            this.#due = null;
            due.make();
        }
    }

    #cancel() {
        if (this.#due !== null) {
            this.#cometd.clearTimeout(this.#due.timer);
            this.#due = null;
        }
    }

    // Transports

    /** The transport that is tried at once when another one has failed, such as where a proxy lets no WebSocket through; or null. */
    #fallback() {
        // While the server is away, that writes one more line into the console each time. So it is done every second time.
        if (this.#failures % 2 !== 0) {
            return null;
        }
        const failed = this.#cometd.getTransport()?.type;
        const types = this.#cometd.getTransportTypes();
        const [next] = this.#accepted().filter((type) => types.indexOf(type) > types.indexOf(failed));
        return next ? this.#cometd.findTransport(next) : null;
    }

    #firstTransport() {
        this.#cometd.getTransportRegistry().reset(false);
        return this.#cometd.findTransport(this.#accepted()[0]);
    }

    #accepted() {
        return this.#cometd.getTransportRegistry().findTransportTypes("1.0", true, this.#cometd.getURL());
    }
}

/** Calls these when the browser is offline, is online again, and when the page is visible again; returns what ends that. */
function heed({offline, online, visible}) {
    const page = globalThis.document;
    const seen = () => page.visibilityState === "visible" && visible();
    globalThis.addEventListener?.("offline", offline);
    globalThis.addEventListener?.("online", online);
    page?.addEventListener("visibilitychange", seen);
    return () => {
        globalThis.removeEventListener?.("offline", offline);
        globalThis.removeEventListener?.("online", online);
        page?.removeEventListener("visibilitychange", seen);
    };
}

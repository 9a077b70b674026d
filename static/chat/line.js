/**
 * The line between the page and the server, which can be cut and restored by hand.
 *
 * Cutting it is what a tunnel or a closed lid does: requests in flight are aborted, nobody says
 * /meta/disconnect, so the server keeps the session and what is queued for it until it expires.
 * It is an extension, registered first, so that nothing that still trickles in is seen by anyone.
 *
 * When the browser itself is offline, what is under way is aborted too, but the client keeps trying: the server may be on this
 * device. When the browser is online again, it tries at once.
 */
export class Line {
    #cometd;
    #connecting = false;
    #resume = null;
    #cut = false;
    #renewing = false;

    constructor(cometd) {
        this.#cometd = cometd;
        const policy = cometd.onTransportFailure.bind(cometd);
        cometd.onTransportFailure = (message, failure, proceed) => {
            this.#connecting = false;
            const resume = () => proceed({...failure, delay: 0, ...this.#renewal()});
            if (failure.action === "none") {
                policy(message, failure, proceed);
            } else if (this.#cut) {
                this.#resume = resume;
            } else if (this.#renewing) {
                resume();
            } else {
                policy(message, failure, (decided) => {
                    this.#resume = decided.action === "none" ? null : () => proceed({...decided, delay: 0});
                    proceed(decided);
                });
            }
        };
        window.addEventListener("offline", () => this.#connecting && this.#abort());
        window.addEventListener("online", () => this.#cut || this.mend());
    }

    get isCut() {
        return this.#cut;
    }

    cut() {
        this.#cut = true;
        if (this.#connecting) {
            this.#abort();
        }
    }

    /** Whether the client is about to shake hands again because it was asked to. */
    get isRenewing() {
        return this.#renewing;
    }

    /** Has the client shake hands again, now or, if the line is cut, when it is mended. */
    renew() {
        this.#renewing = true;
        if (this.#connecting) {
            this.#abort();
        }
    }

    /** Sends at once the connect (or handshake) that the cut had stopped, or that waits for its turn. */
    mend() {
        this.#cut = false;
        const resume = this.#resume;
        this.#resume = null;
        resume?.();
    }

    /** Mends the line without sending what was stopped: the session is about to end. */
    forget() {
        this.#cut = false;
        this.#renewing = false;
        this.#resume = null;
    }

    outgoing(message) {
        if (message.channel === "/meta/connect" || message.channel === "/meta/handshake") {
            this.#connecting = true;
            this.#resume = null;
            this.#renewing &&= message.channel === "/meta/connect";
            if (this.#cut || this.#renewing) {
                // Cut in the short time between two connects: let it leave, then take it back, because
                // only the failure of a request that was sent keeps the client's own cycle going.
                queueMicrotask(() => this.#abort());
            }
        }
        return message;
    }

    incoming(message) {
        if (this.#cut) {
            return null;
        }
        if (message.channel === "/meta/connect" || message.channel === "/meta/handshake") {
            this.#connecting = false;
        }
        return message;
    }

    #renewal() {
        if (!this.#renewing) {
            return {};
        }
        this.#cometd.getTransportRegistry().reset(false);
        return {action: "handshake"};
    }

    #abort() {
        silenceScripts();
        this.#cometd.getTransport()?.abort();
    }
}

/**
 * Takes back the script elements of callback-polling, which the client's abort() leaves loading.
 * Their callbacks must stay callable: a script that has already arrived is run all the same.
 */
function silenceScripts() {
    const scripts = document.head.querySelectorAll("script[src*='jsonp=_cometd_jsonp_']");
    for (const script of scripts) {
        const name = new URL(script.src).searchParams.get("jsonp");
        script.onerror = null;
        script.remove();
        window[name] = () => delete window[name];
    }
    if (scripts.length > 0) {
        window.stop();
    }
}

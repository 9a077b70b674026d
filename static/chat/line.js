/**
 * The line between the page and the server, which can be cut and mended by hand.
 *
 * Cutting it is what a tunnel or a closed lid does: requests in flight are aborted, nobody says
 * /meta/disconnect, so the server keeps the session and what is queued for it until it expires.
 * It is an extension, registered first, so that nothing that still trickles in is seen by anyone.
 */
export class Line {
    #cometd;
    #connecting = false;
    #resume = null;
    #cut = false;

    constructor(cometd) {
        this.#cometd = cometd;
        const policy = cometd.onTransportFailure.bind(cometd);
        cometd.onTransportFailure = (message, failure, proceed) => {
            this.#connecting = false;
            if (this.#cut && failure.action !== "none") {
                this.#resume = () => proceed({...failure, delay: 0});
            } else {
                policy(message, failure, proceed);
            }
        };
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

    /** Sends at once the connect (or handshake) that the cut had stopped. */
    mend() {
        this.#cut = false;
        const resume = this.#resume;
        this.#resume = null;
        resume?.();
    }

    /** Mends the line without sending what was stopped: the session is about to end. */
    forget() {
        this.#cut = false;
        this.#resume = null;
    }

    outgoing(message) {
        if (message.channel === "/meta/connect" || message.channel === "/meta/handshake") {
            this.#connecting = true;
            if (this.#cut) {
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

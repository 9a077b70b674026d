/**
 * The live feed: the server says what happens, so that the page need not ask again and again. Without CometD's client, or while
 * the feed is interrupted, the page asks.
 */

import {post} from "./api.js";

const library = import("./cometd/cometd.js").catch(() => null);
const AGAIN_MS = 10_000;

export class Feed {
    #events;
    #cometd = null;
    #timer = 0;
    #isLive = false;

    /** `events` has `overview` and `notice`, which get the data of the channels of these names, and `changed`. */
    constructor(events) {
        this.#events = events;
    }

    /** Whether what happens arrives without a request for it. */
    get isLive() {
        return this.#isLive;
    }

    async start() {
        this.stop();
        const module = await library;
        if (module === null || this.#cometd !== null || document.hidden) {
            return;
        }
        const cometd = this.#cometd = new module.CometD();
        try {
            const {token, path, channels} = await post("/feed");
            if (cometd !== this.#cometd) {
                return; // it was stopped meanwhile
            }
            this.#follow(cometd, module, new URL(path, location.href).href, token, channels);
        } catch {
            this.#retry(cometd);
        }
    }

    stop() {
        clearTimeout(this.#timer);
        this.#cometd?.disconnect();
        this.#cometd = null;
        this.#isLive = false;
    }

    #follow(cometd, {WebSocketTransport, LongPollingTransport}, url, token, channels) {
        cometd.unregisterTransports();
        cometd.registerTransport("websocket", new WebSocketTransport());
        cometd.registerTransport("long-polling", new LongPollingTransport());
        cometd.configure({url, logLevel: "none", useWorkerScheduler: false}); // its worker would be a script of the page's own making
        cometd.addListener("/meta/handshake", ({successful}) => {
            if (!successful) {
                this.#retry(cometd); // the token holds for a minute only
                return;
            }
            cometd.batch(() => {
                cometd.subscribe(channels.overview, ({data}) => this.#hear(cometd, "overview", data));
                cometd.subscribe(channels.notices, ({data}) => this.#hear(cometd, "notice", data));
            });
        });
        cometd.addListener("/meta/connect", ({successful}) => this.#set(cometd, successful));
        cometd.addListener("/meta/disconnect", () => this.#retry(cometd)); // another operator may end the session of the feed
        cometd.handshake({ext: {session: {token}}});
    }

    #hear(cometd, name, data) {
        if (cometd === this.#cometd) {
            this.#events[name](data);
        }
    }

    #set(cometd, isLive) {
        if (cometd === this.#cometd && isLive !== this.#isLive) {
            this.#isLive = isLive;
            this.#events.changed();
        }
    }

    /** Begins again with a new token, after a while. */
    #retry(cometd) {
        if (cometd === this.#cometd) {
            this.#set(cometd, false);
            this.stop();
            this.#timer = setTimeout(() => this.start(), AGAIN_MS);
        }
    }
}

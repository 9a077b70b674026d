/**
 * One person's session in the chat: CometD's client, the chat's channels, and nothing of the page.
 *
 * The channels are those of CometD's own chat, so that its other clients can sit in the same room:
 * /chat/<room> and /members/<room> are subscribed to, /service/members and /service/privatechat
 * are published to.
 */
import {
    AckExtension,
    CallbackPollingTransport,
    CometD,
    LongPollingTransport,
    ReloadExtension,
    WebSocketTransport,
} from "../vendor/cometd/cometd.js";
import {SessionExtension} from "/extensions/session.js";
import {UpdateExtension} from "/extensions/update.js";
import {Acknowledge} from "./acknowledge.js";
import {Line} from "./line.js";
import {offeredTransports} from "./offered.js";
import {Outbox} from "./outbox.js";

/**
 * Milliseconds between two attempts to reach the server, at most. It has to be less than bayeux.max_interval_ms: as long
 * does a server that was started again wait for us.
 */
const MAX_BACKOFF = 5000;

/**
 * What a session asks for that tells how its messages fare. What was told nowhere, because the page was reloaded meanwhile, comes
 * again after the wait; a failure of the connection is tried again so often, after so many milliseconds.
 */
export const SETTLING = {ackWait: 30000, dispatcher: {retries: 3, delay: 2000}};

const TRANSPORTS = {
    "websocket": () => new WebSocketTransport(),
    "long-polling": () => new LongPollingTransport(),
    "callback-polling": () => new CallbackPollingTransport(),
};

export class Connection {
    #cometd = new CometD();
    #line = new Line(this.#cometd);
    #acknowledge;
    #events;
    #url;
    #person = null;
    #subscriptions = [];
    #outbox;
    #offered = [];
    #online = false;
    #announce = false;
    #crowded = false;
    #leaving = false;
    #reason = "";
    #session = null;
    #update = null;

    /**
     * @param url the server's Bayeux address, absolute
     * @param events what the page wants to hear: joined(), state(name, detail), left(reason),
     *        heard(message), members(names), figures(figures), notice(text), refused(data, key, reason),
     *        session({name, isNew, isSettling, isStored}). What heard() throws is the listener's failure.
     */
    constructor(url, events) {
        this.#url = url;
        this.#events = events;
        this.#acknowledge = new Acknowledge(events.figures);
        this.#outbox = new Outbox(this.#cometd, events.refused, () => this.#showState());
        const cometd = this.#cometd;
        cometd.configure({url, logLevel: "warn", maxBackoff: MAX_BACKOFF});
        // Outgoing messages meet these in the opposite order: our two have the last word.
        cometd.registerExtension("line", this.#line);
        cometd.registerExtension("acknowledge", this.#acknowledge);
        cometd.registerExtension("ack", new AckExtension());
        cometd.registerExtension("reload", new ReloadExtension());
        const policy = cometd.onTransportFailure;
        cometd.onTransportFailure = (message, failure, proceed) => {
            const retry = () => policy(message, failure, proceed);
            if (message.channel === "/meta/handshake" && failure.cause === "failure") {
                this.#reconsider(retry, () => proceed({...failure, action: "none"}));
            } else {
                retry();
            }
        };
        cometd.addListener("/meta/handshake", (message) => this.#onHandshake(message));
        cometd.addListener("/meta/connect", (message) => this.#onConnect(message));
        cometd.addListener("/meta/disconnect", () => this.#onEnd());
    }

    get person() {
        return this.#person;
    }

    get isOffline() {
        return this.#line.isCut;
    }

    /**
     * Joins a room.
     * @param person {name, room, reliable, transport, settles?}, transport one of TRANSPORTS or "automatic"
     * @param resumed whether this is the same page again after a reload, which is announced to no user
     */
    join(person, resumed = false) {
        this.#person = {...person};
        this.#offered = person.offered ?? [];
        this.#online = false;
        this.#crowded = false;
        this.#leaving = false;
        this.#reason = "The server has ended the session.";
        this.#outbox.close();
        this.#announce = !resumed;
        this.#acknowledge.release();
        this.#chooseTransports(person.transport);
        this.#cometd.ackEnabled = person.reliable;
        this.#session = this.#install("session", person.reliable ? new SessionExtension() : null);
        this.#update = this.#install("update", person.settles ? new UpdateExtension(SETTLING) : null);
        this.#events.state("joining");
        this.#cometd.handshake();
    }

    /** Says good-bye and ends the session; left() follows. */
    leave() {
        if (this.#leaving) {
            return; // a second click: the client publishes nothing any more
        }
        this.#leaving = true;
        this.#reason = "";
        this.#line.forget();
        this.#outbox.clear();
        const {name} = this.#person;
        this.#cometd.publish(this.#chat, {user: name, membership: "leave", chat: `${name} has left`});
        this.#cometd.disconnect();
    }

    /** Moves to another room within the same session. */
    enter(room) {
        const {name} = this.#person;
        this.#cometd.batch(() => {
            this.#cometd.publish(this.#chat, {user: name, membership: "leave", chat: `${name} has left`});
            this.#cometd.publish("/service/members", {user: name, room: this.#chat, membership: "leave"});
            this.#subscriptions.forEach((subscription) => this.#cometd.unsubscribe(subscription));
            this.#person.room = room;
            this.#announce = true;
            this.#subscribe();
            this.#register();
        });
    }

    /**
     * Says something to the room, or, with peers (a list of names), to them alone.
     * @param key that of a line which was refused, and is tried again
     */
    say(text, peers = [], key = null) {
        const {name: user, reliable} = this.#person;
        if (peers.length === 0) {
            this.#outbox.say(this.#chat, {user, chat: text}, reliable ? key ?? newKey() : null);
        } else {
            const data = {room: this.#chat, user, chat: text, peer: peers.join(",")};
            this.#outbox.say("/service/privatechat", data);
        }
    }

    /** Cuts the connection without a word to the server. */
    goOffline() {
        this.#online = false;
        this.#outbox.close();
        this.#line.cut();
        this.#showState();
    }

    goOnline() {
        this.#events.state("joining");
        this.#line.mend();
    }

    /** Tells the server from now on how each message fares. The session stays what it is: it is only logged in to once more. */
    settle() {
        if (this.#person.settles || !this.#person.reliable) {
            return;
        }
        this.#person.settles = true;
        this.#update = this.#install("update", new UpdateExtension(SETTLING));
        this.#online = false;
        this.#outbox.close();
        this.#line.renew();
        this.#showState();
    }

    /** Whether incoming messages are acknowledged; if not, the server sends them again. */
    set acknowledging(yes) {
        if (yes) {
            this.#acknowledge.release();
        } else {
            this.#acknowledge.hold();
        }
    }

    /** Prepares for the page going away: returns what join() needs to resume, or null. */
    suspend() {
        if (this.#person === null || this.#leaving || this.#cometd.isDisconnected()) {
            return null;
        }
        this.#cometd.reload();
        return {...this.#person, offered: this.#offered};
    }

    get #chat() {
        return `/chat/${this.#person.room}`;
    }

    /** Puts this extension in the place of the one of its name, if there is one. */
    #install(name, extension) {
        this.#cometd.unregisterExtension(name);
        if (extension !== null) {
            this.#cometd.registerExtension(name, extension);
        }
        return extension;
    }

    #chooseTransports(choice) {
        for (const type of Object.keys(TRANSPORTS)) {
            this.#cometd.unregisterTransport(type);
        }
        for (const [type, make] of Object.entries(TRANSPORTS)) {
            if (choice === "automatic" || choice === type) {
                this.#cometd.registerTransport(type, make());
            }
        }
    }

    /** Subscriptions die with the session, so this happens after every handshake. */
    #onHandshake(message) {
        if (!message.successful) {
            this.#onRefusal(message);
            return;
        }
        if (!message.ext?.reload) {
            this.#offered = message.supportedConnectionTypes;
        }
        const login = message.ext?.session;
        if (message.reestablish && !login?.reconnected) {
            this.#events.notice("The server no longer had this session, so the page opened a new one. Messages that came meanwhile are lost.");
        }
        this.#cometd.batch(() => this.#subscribe());
        this.#events.joined();
        this.#events.session({
            name: (this.#session?.name ?? "").replace(/^\/node\/[^/]+\//, ""),
            isNew: !login?.reconnected && !message.ext?.reload,
            isSettling: this.#update?.isGranted ?? false,
            isStored: login?.durable ?? false,
        });
    }

    #subscribe() {
        const {name, room} = this.#person;
        this.#subscriptions = [
            this.#cometd.subscribe(this.#chat, (message) => this.#onChat(message)),
            this.#cometd.subscribe(`/members/${room}`, (message) => this.#onMembers(message)),
        ];
        if (this.#announce) {
            this.#announce = false;
            this.#cometd.publish(this.#chat, {user: name, membership: "join", chat: `${name} has joined`});
        }
    }

    #register() {
        this.#cometd.publish("/service/members", {user: this.#person.name, room: this.#chat}, (reply) => {
            if (reply.error) {
                this.#events.notice(`The server did not add you to the list of members (${reply.error}).`);
            }
        });
    }

    #onConnect(message) {
        if (this.#leaving) {
            return;
        }
        const before = this.#online;
        if (message.advice) {
            this.#crowded = message.advice["multiple-clients"] === true;
        }
        this.#online = message.successful === true && !this.#line.isCut;
        if (message.advice?.reconnect === "none") {
            this.#onEnd();
        } else if (!this.#online) {
            this.#outbox.close();
        } else if (!before) {
            // It may be another server by now, which has our session from the store and knows of no members.
            this.#cometd.batch(() => this.#register());
            this.#outbox.open();
        }
        this.#showState(message.error);
    }

    #onChat(message) {
        this.#events.heard(message);
    }

    #onMembers(message) {
        if (!Array.isArray(message.data)) {
            return;
        }
        const names = message.data.filter((name) => typeof name === "string");
        this.#events.members(names);
        const isOurs = !this.#leaving && message.channel === `/members/${this.#person?.room}`;
        if (isOurs && this.#online && !names.includes(this.#person.name)) {
            // The server was restarted between two connects of ours, so quickly that none of them failed.
            this.#register();
        }
    }

    /** The session has ended, by our wish or the server's. */
    #onEnd() {
        if (this.#person !== null) {
            this.#person = null;
            this.#online = false;
            this.#line.forget();
            this.#outbox.clear();
            this.#events.left(this.#reason);
        }
    }

    /** A handshake was refused. The client decides after its listeners what to do: if it stops, so do we. */
    #onRefusal(message) {
        this.#showState(message.error);
        queueMicrotask(() => {
            if (this.#cometd.isDisconnected()) {
                this.#reason = message.error ? `The server refused: ${message.error}` : "The server could not be reached.";
                this.#onEnd();
            }
        });
    }

    /** A handshake got no answer: ask whether the chosen transport is offered at all, before it is tried for ever. */
    async #reconsider(retry, stop) {
        const wanted = this.#person?.transport;
        const offered = wanted === "automatic" ? [] : await offeredTransports(this.#url);
        if (this.#cometd.isDisconnected()) {
            return;
        }
        if (offered.length === 0 || offered.includes(wanted)) {
            retry();
        } else {
            stop();
            this.#reason = `This server does not offer ${wanted}. It offers: ${offered.join(", ")}.`;
            this.#onEnd();
        }
    }

    #showState(error = "") {
        if (this.#person === null) {
            return;
        }
        const detail = {
            transport: this.#cometd.getTransport()?.type ?? "",
            offered: this.#offered,
            waiting: this.#outbox.waiting,
            crowded: this.#crowded,
            error,
        };
        const isJoining = this.#line.isRenewing && !this.#line.isCut;
        const connected = this.#online ? "online" : isJoining ? "joining" : "lost";
        this.#events.state(this.#line.isCut ? "offline" : connected, detail);
    }
}

/** Returns what no other line has. (crypto.randomUUID is for secure origins only, and this page may be served by HTTP.) */
function newKey() {
    return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

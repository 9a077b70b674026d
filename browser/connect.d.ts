import type {CometD, Configuration} from "cometd";
import type {Received} from "./messages.js";
import type {Outbox, OutboxOptions} from "./outbox.js";
import type {Presence, PresenceOptions} from "./presence.js";
import type {Refusal, SessionExtension, SessionFields} from "./session.js";
import type {EndedSubscription} from "./update.js";

/**
 * How the page is connected: `connecting`, until there is an answer; `connected`; `waiting`, while another tab or device has the name;
 * `refused` by the server; `offline`, while the device is, or the server is not reached; `closed` by the page.
 */
export type ConnectionState = "connecting" | "connected" | "waiting" | "refused" | "offline" | "closed";

export interface ConnectionStatus {
    readonly state: ConnectionState;
    /** Why the page is waiting, refused or offline. */
    readonly reason: Refusal | null;
    /** Whether the page does not try again: the server has refused it for good. */
    readonly isFinal: boolean;
}

export interface ConnectOptions {
    /** Where the server is: `/cometd`, or an address that ends so. */
    url: string;
    /** The name of the session, such as `joe/1`. It survives a reload. Without a name, the session is anonymous. */
    name?: string;
    /** A token, or a function that is asked for one: before the first handshake, before a token expires, and after a refusal. */
    token?: string | (() => string | Promise<string>);
    /** More fields of `ext.session`, such as `{persistent: true}` or `{maxOpen: 1}`. */
    session?: Omit<SessionFields, "name" | "token">;
    /** Whether this page waits while another tab or device has the name. Default: true; otherwise it takes the session over with a token, or is refused. */
    waits?: boolean;
    /** The pauses between two attempts, in milliseconds: the first, which doubles, and the longest. Default: 1000 and 5000. */
    retry?: {minDelay?: number; maxDelay?: number};
    /** How long a publish or a request waits to be connected, and a request for its answer, in milliseconds, at most 2147483647. Default: 10000. */
    timeout?: number;
    /** Options of the outbox. By default, each subject has its own: `crewel.outbox joe` for the name `joe/1`. `false`: this page does not send what is in it. */
    outbox?: Omit<OutboxOptions, "onChange"> | false;
    /** What `@opentelemetry/api` exports: the connection makes spans of what it publishes and requests, and of what listeners do. */
    traces?: {readonly trace: object; readonly context: object; readonly SpanKind: object; readonly SpanStatusCode: object};
    /** More of the configuration of the `cometd` client. */
    cometd?: Partial<Configuration>;
}

/** Fields of `ext.publish`, and how long to wait to be connected. */
export interface PublishFields {
    persistent?: boolean;
    priority?: number;
    /** The idempotency key. */
    key?: string;
    clientProperties?: Record<string, unknown>;
    timeout?: number;
    [field: string]: unknown;
}

/** Fields of `ext.subscribe`, and what ends the subscription. */
export interface SubscribeFields {
    signal?: AbortSignal;
    filter?: string;
    group?: string;
    history?: {numEntries?: number; newestFirst?: boolean};
    [field: string]: unknown;
}

/** A subscription that the server has confirmed. */
export interface Subscribed {
    readonly channel: string;
    /** The first reply of the server. */
    readonly reply: Received;
    /** Resolves when the server knows, or is not reached. */
    unsubscribe(): Promise<void>;
}

/** A listener threw, so its message is rejected. */
export interface Rejected {
    message: Received;
    error: any;
}

/** The server refused what was sent, or it is unknown whether the server has it. */
export class ReplyError extends Error {
    constructor(channel: string, reply: Partial<Received>);
    /** Why the server refused it; empty if that is unknown. */
    readonly errorCode: string;
    readonly reply: Partial<Received>;
}

/** A page's connection, which lasts until `close`. */
export interface Connection {
    readonly status: ConnectionStatus;
    /** The official client, for everything else. Null without a browser. */
    readonly cometd: CometD;
    /** The session, with its name. Null without a browser. */
    readonly session: SessionExtension;
    /** Publishes that survive a lost connection, a reload and a closed tab. */
    readonly outbox: Outbox;
    /** Calls the listener with each new status; returns what ends that. */
    on(event: "status", listener: (status: ConnectionStatus) => void): () => void;
    /** With each message that a listener has rejected. Without such a listener, the console shows it. */
    on(event: "rejected", listener: (rejected: Rejected) => void): () => void;
    /** With each subscription that the server has ended. */
    on(event: "ended", listener: (ended: EndedSubscription) => void): () => void;
    /** When the number of messages that wait in the outbox has changed, in this tab or another. */
    on(event: "outbox", listener: (outbox: Outbox) => void): () => void;
    /**
     * Calls the listener with each message of a channel or pattern, in this session and those after it. What it returns or throws
     * acknowledges or rejects the message. Resolves when the server has confirmed it for the first time; rejects with a ReplyError
     * if the server refuses it.
     */
    subscribe(channel: string, listener: (message: Received) => unknown, fields?: SubscribeFields): Promise<Subscribed>;
    /** Answers the requests of a channel with what the function returns or throws, in this session and those after it. */
    reply(channel: string, answer: (message: Received) => unknown, fields?: SubscribeFields): Promise<Subscribed>;
    /**
     * Publishes once, when the page is connected. Resolves with the reply; rejects with a ReplyError if the server refuses it, or if
     * it is unknown whether the server has it. What must arrive goes into the `outbox`.
     */
    publish(channel: string, data: unknown, fields?: PublishFields): Promise<Received>;
    /** Publishes a request, when the page is connected; resolves with the first answer. */
    request(channel: string, data: unknown, options?: {timeout?: number; ext?: Record<string, unknown>}): Promise<Received>;
    /** The presence of a channel, until its `close`: its members, and this page as one of them. */
    presence(channel: string, options?: PresenceOptions): Presence;
    /** Restarts the time in which the message must be acknowledged. */
    working(message: Received): void;
    /** Ends the session and its subscriptions. Resolves when the server knows, or is not reached. */
    close(): Promise<void>;
}

/**
 * Connects this page, and keeps it connected. A page has one connection for each `url` and `name`: another call returns the one that is
 * open. It throws a TypeError for an option that differs; functions take the place of those before. Without a browser, a connection does nothing.
 */
export function connect(options: ConnectOptions): Connection;

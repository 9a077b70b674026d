import type {CometD, Extension, Message} from "cometd";
import "./messages.js";

/** Fields of `ext.session` in the handshake. */
export interface SessionFields {
    name?: string;
    token?: string;
    /** Whether the session must survive a restart of the server; refused without a chosen `name`, `ack` and a store. */
    persistent?: boolean;
    /** How long a named session lives without a request, in milliseconds. */
    timeout?: number;
    /** Whether the login is refused while another client is connected with this name, also if a token would take the session over. */
    reconnectSameClientOnly?: boolean;
    [field: string]: unknown;
}

/** `ext.session` of a handshake reply. */
export interface SessionReply {
    name?: string;
    reconnected?: boolean;
    queued?: number;
    durable?: boolean;
    update?: boolean;
    resume?: string;
    [field: string]: unknown;
}

/** Why the server refused a handshake. */
export interface Refusal {
    errorCode: string;
    message: string;
    retryAfter?: number;
}

export interface SessionOptions {
    /** Where the secret is kept, such as `window.sessionStorage`. */
    storage?: Pick<Storage, "getItem" | "setItem" | "removeItem"> | null;
    /** The name of the secret in the storage. Default: `crewel.session`. */
    key?: string;
    /** Called after each reply to a handshake, and when another client takes over the session. */
    changed?: (session: SessionExtension) => void;
    /**
     * Whether this client tries again while another one has its name, and takes the session over when that has gone. A page that
     * is closed leaves its secret in `localStorage` for the next one of its name. Default: false.
     */
    waits?: boolean;
}

/** Names the session of this page, and resumes it after a reload. */
export class SessionExtension implements Extension {
    /** `asked` are the fields of each handshake, or a function that returns them, for tokens that change. */
    constructor(asked?: SessionFields | (() => SessionFields), options?: SessionOptions);
    /** `ext.session` of the last successful handshake reply; null before. */
    readonly reply: SessionReply | null;
    /** Why the server refused the last handshake, or that another client has taken over the session; null if there is one. */
    readonly refusal: Refusal | null;
    /** The public name of the session, or null. */
    readonly name: string | null;
    /** The secret with which a handshake takes over the session, or null. */
    readonly resume: string | null;
    /** Whether this client waits for another one that has its name. */
    readonly isWaiting: boolean;
    /** Makes the next handshake open a new session. */
    forget(): void;
    registered(): void;
    unregistered(): void;
    incoming(message: Message): Message | null;
    outgoing(message: Message): Message | null;
}

import type {CometD, Extension, Message} from "cometd";

/** Fields of `ext.session` in the handshake. */
export interface SessionFields {
    name?: string;
    token?: string;
    persistent?: boolean;
    /** How long a named session lives without a request, in milliseconds. */
    timeout?: number;
    [field: string]: unknown;
}

/** What the server said of the session. */
export interface SessionReply {
    name?: string;
    reconnected?: boolean;
    queued?: number;
    durable?: boolean;
    update?: boolean;
    resume?: string;
    [field: string]: unknown;
}

/** Why a handshake was refused. */
export interface Refusal {
    errorCode: string;
    message: string;
    retryAfter?: number;
}

export interface SessionOptions {
    /** Where the secret is kept, such as `window.sessionStorage`. */
    storage?: Pick<Storage, "getItem" | "setItem" | "removeItem"> | null;
    /** Its name there. Default: `crewel.session`. */
    key?: string;
    /** Called after each answer to a handshake. */
    changed?: (session: SessionExtension) => void;
}

/** Names the session of this page, and takes it over again after a reload. */
export class SessionExtension implements Extension {
    /** `asked` are the fields of each handshake, or a function that returns them, for tokens that change. */
    constructor(asked?: SessionFields | (() => SessionFields), options?: SessionOptions);
    /** What the server said when it granted the last handshake; null before. */
    readonly reply: SessionReply | null;
    /** Why the last handshake was refused; null if it was granted. */
    readonly refusal: Refusal | null;
    /** The public name of the session, or null. */
    readonly name: string | null;
    /** The secret that takes the session over, or null. */
    readonly resume: string | null;
    /** Lets the next handshake begin a new session. */
    forget(): void;
    incoming(message: Message): Message | null;
    outgoing(message: Message): Message | null;
}

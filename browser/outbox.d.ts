import type {CometD, Extension, Message} from "cometd";
import "./messages.js";

/** The outbox is full: it has `maxMessages` publishes, or `maxBytes`. */
export class OutboxFullError extends Error {
    constructor(most: number, unit?: string);
}

/** Another process, or another outbox of this one, uses the file. */
export class OutboxInUseError extends Error {
    constructor(path: string);
}

/** A publish that the server refused permanently. */
export interface RefusedPublish {
    key: string;
    channel: string;
    data: unknown;
    errorCode: string;
    message: string;
}

export interface OutboxOptions {
    /** In a browser, the name of the database, one for each user. Default: `crewel.outbox`; of `connect`, with the subject of the session after it. */
    name?: string;
    /** In Node.js, the file, in place of a name. */
    path?: string;
    /** The maximum number of waiting publishes. Default: 1000. */
    maxMessages?: number;
    /** The maximum size of what a file has for the server and of refused publishes. Default: 64 MiB. */
    maxBytes?: number;
    /** Called with each publish that the server refused permanently. */
    onRefused?: (publish: RefusedPublish) => void;
    /** Called when `waiting` may have changed, not for its first value 0. */
    onChange?: (outbox: Outbox) => void;
}

/** Keeps publishes until the server has replied to them: in IndexedDB, or in a file of Node.js. */
export class Outbox implements Extension {
    constructor(options?: OutboxOptions);
    /** How many publishes are waiting for the server. */
    readonly waiting: number;
    /**
     * Keeps a publish. Resolves to its idempotency key, `key` or a random one, once it is on disk; rejects with an
     * OutboxFullError, an OutboxInUseError, or with a TypeError for a wrong channel, a pattern, or data that JSON cannot represent, such as half of a
     * surrogate pair. `ext` has its other fields, such as `{publish: {priority: 9}}`.
     */
    publish(channel: string, data: {} | null, options?: {key?: string; ext?: Record<string, unknown>}): Promise<string>;
    /** The publishes that the server refused permanently. */
    refused(): Promise<RefusedPublish[]>;
    /** Deletes the refused publishes. */
    forgetRefused(): Promise<void>;
    /** Resolves when the server has replied to all publishes that wait. */
    drained(): Promise<void>;
    /** Resolves when an outbox that is not registered has given up its file, with the publishes that wait in it. */
    close(): Promise<void>;
    registered(name: string, cometd: CometD): void;
    unregistered(): void;
    incoming(message: Message): Message | null;
}

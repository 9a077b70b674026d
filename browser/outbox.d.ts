import type {CometD, Extension, Message} from "cometd";
import "./messages.js";

/** The outbox is full: it has `maxMessages` publishes. */
export class OutboxFullError extends Error {
    constructor(most: number);
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
    /** The name of the database. Default: `crewel.outbox`. */
    name?: string;
    /** The maximum number of waiting publishes. Default: 1000. */
    maxMessages?: number;
    /** Called with each publish that the server refused permanently. */
    onRefused?: (publish: RefusedPublish) => void;
    /** Called when `waiting` may have changed, not for its first value 0. */
    onChange?: (outbox: Outbox) => void;
}

/** Keeps publishes in IndexedDB until the server has replied to them. */
export class Outbox implements Extension {
    constructor(options?: OutboxOptions);
    /** How many publishes are waiting for the server. */
    readonly waiting: number;
    /**
     * Keeps a publish. Resolves to its idempotency key, `key` or a random one, once it is in the database; rejects with an
     * OutboxFullError, or with a TypeError for a wrong channel, a pattern, or data that JSON cannot represent, such as half of a
     * surrogate pair. `ext` has its other fields, such as `{publish: {priority: 9}}`.
     */
    publish(channel: string, data: {} | null, options?: {key?: string; ext?: Record<string, unknown>}): Promise<string>;
    /** The publishes that the server refused permanently. */
    refused(): Promise<RefusedPublish[]>;
    /** Deletes the refused publishes. */
    forgetRefused(): Promise<void>;
    registered(name: string, cometd: CometD): void;
    unregistered(): void;
    incoming(message: Message): Message | null;
}

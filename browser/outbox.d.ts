import type {CometD, Extension, Message} from "cometd";

/** The outbox has as many publishes as it may. */
export class OutboxFullError extends Error {
    constructor(most: number);
}

/** A publish that the server refused for good. */
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
    /** How many publishes wait at most. Default: 1000. */
    maxMessages?: number;
    onRefused?: (publish: RefusedPublish) => void;
    /** Called when `waiting` may have changed. */
    onChange?: (outbox: Outbox) => void;
}

/** Keeps publishes in IndexedDB until the server has answered them. */
export class Outbox implements Extension {
    constructor(options?: OutboxOptions);
    /** How many publishes wait for the server. */
    readonly waiting: number;
    /** Resolves to the idempotency key once the publish is in the database. */
    publish(channel: string, data: unknown, options?: {key?: string; ext?: Record<string, unknown>}): Promise<string>;
    refused(): Promise<RefusedPublish[]>;
    forgetRefused(): Promise<void>;
    registered(name: string, cometd: CometD): void;
    unregistered(): void;
    incoming(message: Message): Message | null;
}

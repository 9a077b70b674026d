import type {CometD, Extension, Message} from "cometd";
import "./messages.js";

/** The delivery status of a message that the server did not accept. */
export interface RejectedStatus {
    id: string;
    state?: string;
    errorCode?: string;
    message?: string;
    reason: string;
}

/** A subscription that the server has ended. */
export interface EndedSubscription {
    subscription: string;
    errorCode: string;
    message: string;
}

export interface UpdateOptions {
    /** Called with each status that the server rejected, because the message is no longer open. */
    onRejected?: (status: RejectedStatus) => void;
    /** Called when the server ends a subscription. */
    onEnded?: (ended: EndedSubscription) => void;
    /** How many ids of acknowledged messages are kept, to drop duplicates, and how many messages may wait for a listener. Default: 10000. */
    remembered?: number;
    /** After how many milliseconds a message without a listener becomes a dead letter, at most 2147483647; -1, the default: never. */
    unclaimedMs?: number;
}

/** Acknowledges or rejects each message by what its listeners return or throw. */
export class UpdateExtension implements Extension {
    /** `asked` are further fields of `ext.session`, such as `{ackWait: 60000}`. With `{maxOpen: 1}`, messages come one at a time. */
    constructor(asked?: Record<string, unknown> & {maxOpen?: number}, options?: UpdateOptions);
    /** Whether the server accepts delivery statuses from this session. */
    readonly isGranted: boolean;
    /** How many messages wait for a listener. */
    readonly unclaimed: number;
    /** Restarts the time in which the message must be acknowledged. */
    working(message: Message): void;
    registered(name: string, cometd: CometD): void;
    unregistered(): void;
    incoming(message: Message): Message | null;
    outgoing(message: Message): Message | null;
}

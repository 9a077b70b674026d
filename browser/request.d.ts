import type {CometD, Extension, Message, SubscriptionHandle} from "cometd";
import "./messages.js";

/** An answer that reports a failure of the responder. A responder throws it to report one. */
export class ErrorAnswer extends Error {
    constructor(errorCode: string, message?: string, data?: unknown);
    readonly errorCode: string;
    readonly data: unknown;
}

/** No answer came in time. */
export class AnswerTimeoutError extends Error {
    constructor(channel: string, timeout: number);
}

/** The request was refused, or it is unknown whether it was accepted. */
export class RequestError extends Error {
    constructor(message: string, reply?: Message | null);
    readonly reply: Message | null;
}

/** The channel for the answer to this message, or null if it is not a request. */
export function replyChannel(message: Message): string | null;

/**
 * The answer to a request, for `cometd.publish(channel, data, {ext})`. Without `data`, it has the data of the request, bytes and
 * content type included, and its client properties.
 */
export function createResponse(
    message: Message,
    ...data: unknown[]
): {channel: string; data: unknown; ext: Record<string, unknown>};

/** Sends requests and answers them. */
export class RequestExtension implements Extension {
    /** `timeout` is the default of `request`, in milliseconds. */
    constructor(options?: {timeout?: number});
    /** The id of the channel on which this session gets its answers; null before the handshake. */
    readonly replyId: string | null;
    /** How many requests are waiting for an answer. */
    readonly pending: number;
    /** How many further answers to a request were dropped. */
    duplicates: number;
    /** How many answers came too late and were dropped. */
    late: number;
    /**
     * Publishes a request; resolves with the first answer. `timeout` is in milliseconds. Rejects with an AnswerTimeoutError, an
     * ErrorAnswer or a RequestError.
     */
    request(channel: string, data: unknown, options?: {timeout?: number; ext?: Record<string, unknown>}): Promise<Message>;
    /** Answers the requests on a channel with the result of the function, or of its promise: data, or what `createResponse` returns. */
    reply(
        channel: string,
        answer: (message: Message) => unknown,
        props?: Record<string, unknown>,
        callback?: (reply: Message) => void
    ): SubscriptionHandle;
    registered(name: string, cometd: CometD): void;
    unregistered(): void;
    incoming(message: Message): Message | null;
    outgoing(message: Message): Message | null;
}

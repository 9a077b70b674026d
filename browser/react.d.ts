import type {Connection, ConnectionStatus, SubscribeFields} from "./connect.js";
import type {Received} from "./messages.js";
import type {Outbox} from "./outbox.js";

/** Whether the server has confirmed a subscription, and why it has not. */
export interface ChannelState {
    readonly isSubscribed: boolean;
    /** A ReplyError, or what says why the server has ended the subscription. */
    readonly error: Error | null;
}

/** The outbox of a connection. */
export interface OutboxState {
    /** How many publishes wait for the server. */
    readonly waiting: number;
    /** As `Outbox.publish`. */
    readonly publish: Outbox["publish"];
}

/** How the page is connected. */
export function useConnection(connection: Connection): ConnectionStatus;

/**
 * Calls `onMessage` with each message of the channel while the component is mounted. What it returns or throws acknowledges or
 * rejects the message. With null in place of the channel, it waits.
 */
export function useChannel(
    connection: Connection,
    channel: string | null,
    onMessage: (message: Received) => unknown,
    fields?: Omit<SubscribeFields, "signal">
): ChannelState;

/** How many publishes wait in the outbox of the connection, and what adds one. */
export function useOutbox(connection: Connection): OutboxState;

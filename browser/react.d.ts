import type {Connection, ConnectionStatus, SubscribeFields} from "./connect.js";
import type {Received} from "./messages.js";
import type {Outbox} from "./outbox.js";
import type {Member, PresenceOptions} from "./presence.js";

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

/** The members of a channel. */
export interface PresenceState {
    readonly members: readonly Member[];
    /** The member that this page is; null while it is not present. */
    readonly id: string | null;
    /** Why the server refuses the presence of the channel. */
    readonly error: Error | null;
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

/**
 * The members of the channel while the component is mounted. With other `data`, the page is present with these. With null in place of
 * the channel, it waits.
 */
export function usePresence(connection: Connection, channel: string | null, options?: PresenceOptions): PresenceState;

/** How many publishes wait in the outbox of the connection, and what adds one. */
export function useOutbox(connection: Connection): OutboxState;

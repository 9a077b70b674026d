import type {Connection} from "./connect.js";

/** A member of a channel. */
export interface Member {
    /** Its subject, or a text that begins with `anonymous/`. */
    readonly id: string;
    /** How many of its sessions are present. */
    readonly sessions: number;
    /** The data that one of its sessions has set last. */
    readonly data: any;
}

/** What happened to a member. One that has left is as it was last. */
export interface PresenceChange {
    readonly change: "join" | "update" | "leave";
    readonly member: Member;
}

export interface PresenceOptions {
    /** Whether this page is present, or only sees the members. Default: true. */
    enter?: boolean;
    /** With what it is present: a JSON value. Default: null. */
    data?: unknown;
}

/** The server refused what was asked, or it is unknown whether it was done. */
export class PresenceError extends Error {
    /** Why the server refused it; empty if that is unknown. */
    readonly errorCode: string;
}

/** The presence of a channel, until `close`. It continues after a lost connection, and in another session. */
export class Presence {
    constructor(connection: Connection, channel: string, options?: PresenceOptions);
    readonly channel: string;
    /** Resolves when the members are listed; rejects with an error if the server refuses that. No caller must handle it. */
    readonly ready: Promise<void>;
    /** The members: another array after each change. */
    readonly members: readonly Member[];
    /** The id of this page's member; null while the page is not present. */
    readonly id: string | null;
    /** Why the server refuses the presence of the channel. */
    readonly error: Error | null;
    /** Calls the listener when anything has changed, with the changes of members: none, or some. Returns what ends that. */
    on(listener: (changes: readonly PresenceChange[]) => void): () => void;
    /** Lets this page be present, or replaces its data. Resolves when the server has them. */
    enter(data?: unknown): Promise<void>;
    /** Replaces the data of this page, which is present. */
    update(data: unknown): Promise<void>;
    /** Lets this page not be present, unless another presence of the channel does. The members are listed all the same. */
    leave(): Promise<void>;
    /** Leaves, and lists the members no more. What is asked for after it is rejected. */
    close(): void;
}

import type {Message} from "cometd";

/** `ext.update` of a message, in a session with `UpdateExtension`. What has its usual value is left out. */
export interface UpdateFields {
    id?: string;
    sender?: string;
    subscription?: string;
    /** `ERASED`: no message, but the notice that its topic is gone. */
    state?: string;
    priority?: number;
    /** How often the message may have been sent before. */
    redeliver?: number;
    persistent?: boolean;
    /** Whether it is of a history. */
    initial?: boolean;
    /** When the server accepted it, in nanoseconds since 1970. */
    rcvTimestamp?: string;
    lifeTime?: number;
    remainingLife?: number;
    replyTo?: string;
    clientProperties?: Record<string, unknown>;
    /** Its place in the response, and how many are left, after an absence. */
    queue?: {index: number; size: number};
    [field: string]: unknown;
}

/** `ext` of a message or of a reply. */
export interface Ext {
    update?: UpdateFields;
    /** The channel for the answer to a request. */
    replyTo?: string;
    /** Of a reply to a publish: its id, and why it was refused. */
    publish?: {id?: string; state?: string; errorCode?: string; message?: string; [field: string]: unknown};
    /** Of a reply to a handshake. */
    session?: Record<string, unknown>;
    /** Of a reply to a subscribe: its position, and why it was refused. */
    subscribe?: Record<string, unknown>;
    [field: string]: any;
}

/** Why the client made a failed reply itself: it had no connection, or no answer in time. */
export interface Failure {
    message: Message;
    reason?: string;
    exception?: unknown;
    httpCode?: number;
    websocketCode?: number;
    connectionType?: string;
    transport?: unknown;
    action?: string;
    delay?: number;
}

/** A message as listeners get it from Crewel. */
export type Received = Omit<Message, "ext"> & {ext?: Ext};

declare module "cometd" {
    interface Message {
        /** In a reply that the client made itself, because the server was not reached. */
        failure?: Failure;
    }

    interface CometD {
        /** Called with what a listener has thrown. The rest are the listener's subscription, whether it has one, and the message. */
        onListenerException?: (error: any, handle: SubscriptionHandle, isListener: boolean, message: Message) => void;
        /** `configure`, and then `handshake`. */
        init(options: Configuration | string, handshakeProps?: object, handshakeCallback?: Callback): void;
        handshake(callback: (reply: Received) => void): void;
        handshake(props: object, callback: (reply: Received) => void): void;
        addListener(channel: string, callback: (message: Received) => void): ListenerHandle;
        subscribe(
            channel: string,
            callback: (message: Received) => void,
            subscribeCallback?: (reply: Received) => void
        ): SubscriptionHandle;
        subscribe(
            channel: string,
            callback: (message: Received) => void,
            props: object,
            subscribeCallback?: (reply: Received) => void
        ): SubscriptionHandle;
        publish(channel: string, data: any, callback: (reply: Received) => void): void;
        publish(channel: string, data: any, props: object, callback: (reply: Received) => void): void;
    }
}

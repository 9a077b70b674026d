/** React hooks for Crewel: the connection, the messages of a channel, and an outbox. */
import {Outbox, SessionExtension, UpdateExtension} from "@crewel/client";
import {AckExtension, CometD} from "cometd";
import type {Message} from "cometd";
import {useEffect, useRef, useState, useSyncExternalStore} from "react";

const AGAIN_MS = 2000;

export interface Connection {
    cometd: CometD;
    outbox: Outbox;
    /** Calls the listener when `state()` may have changed; returns what ends that. */
    watch(listener: () => void): () => void;
    /** Whether the server answers, or another tab has the session, and how many publishes wait. */
    state(): string;
}

/** Connects this page as a named session, which one tab at a time has: another one waits until that is closed. */
export function connect(url: string, name: string): Connection {
    const listeners = new Set<() => void>();
    let current = "connecting, 0 waiting";
    let isConnected = false;
    let again: number | undefined;
    const session = new SessionExtension({name}, {storage: window.sessionStorage, waits: true, changed});
    const outbox = new Outbox({onChange: changed});
    const cometd = new CometD();

    function changed(): void {
        const status = session.isWaiting ? `${name} is open in another tab` : isConnected ? "connected" : "connecting";
        current = `${status}, ${outbox.waiting} waiting`;
        listeners.forEach((listener) => listener());
    }

    cometd.configure({url, maxBackoff: 2000});
    cometd.unregisterTransport("callback-polling"); // Crewel does not offer it
    cometd.registerExtension("session", session);
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("update", new UpdateExtension());
    cometd.registerExtension("outbox", outbox);
    cometd.addListener("/meta/handshake", (reply: Message) => {
        if (reply.failure) {
            // Without a server, the client stops when it has tried each transport: begin again.
            window.clearTimeout(again);
            again = window.setTimeout(() => cometd.isDisconnected() && cometd.handshake(), AGAIN_MS);
        }
    });
    cometd.addListener("/meta/connect", (message: Message) => {
        isConnected = message.successful === true;
        changed();
    });
    cometd.handshake();
    return {
        cometd,
        outbox,
        watch(listener) {
            listeners.add(listener);
            return () => listeners.delete(listener);
        },
        state: () => current,
    };
}

/** `connected, 0 waiting`, and so on. */
export function useConnection(connection: Connection): string {
    return useSyncExternalStore(connection.watch, connection.state);
}

/** Calls `onMessage` with each message of the channel; what it throws rejects the message. */
export function useChannel(connection: Connection, channel: string, onMessage: (message: Message) => unknown): void {
    const latest = useRef(onMessage);
    useEffect(() => {
        latest.current = onMessage;
    });
    useEffect(() => {
        const {cometd} = connection;
        const subscribe = () => cometd.subscribe(channel, (message: Message) => latest.current(message));
        let subscription = cometd.getStatus() === "connected" ? subscribe() : null;
        const listener = cometd.addListener("/meta/handshake", (reply: Message) => {
            if (reply.successful) {
                subscription ??= subscribe();
            }
        });
        return () => {
            cometd.removeListener(listener);
            if (subscription) {
                cometd.unsubscribe(subscription);
            }
        };
    }, [connection, channel]);
}

/** The data of the messages that came on a channel. */
export function useMessages<Data>(connection: Connection, channel: string): Data[] {
    const [messages, setMessages] = useState<Data[]>([]);
    useChannel(connection, channel, (message) => {
        setMessages((before) => [...before, message.data as Data]);
    });
    return messages;
}

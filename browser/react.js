/** Hooks of a connection for React: its status, the messages and the members of a channel, and its outbox. */
import {useCallback, useEffect, useRef, useState, useSyncExternalStore} from "react";
import {CONNECTING} from "./connect-attempts.js";

const ASKED = Object.freeze({isSubscribed: false, error: null});
const ABSENT = Object.freeze({members: Object.freeze([]), id: null, error: null});
const SUBSCRIBED = Object.freeze({isSubscribed: true, error: null});

/** How the page is connected: {state, reason, isFinal}. */
export function useConnection(connection) {
    return useSyncExternalStore(
        useCallback((changed) => connection.on("status", changed), [connection]),
        () => connection.status,
        () => CONNECTING, // of a page that a server renders
    );
}

/**
 * Calls `onMessage` with each message of the channel while the component is mounted. What it returns or throws acknowledges or
 * rejects the message. With null in place of the channel, it waits.
 * @param fields of `ext.subscribe`
 */
export function useChannel(connection, channel, onMessage, fields = {}) {
    const [state, setState] = useState(ASKED);
    const latest = useRef(onMessage);
    const asked = JSON.stringify(fields); // an equal object in the next rendering is no other subscription
    useEffect(() => {
        latest.current = onMessage;
    });
    useEffect(() => {
        if (channel === null) {
            return undefined;
        }
        const ending = new AbortController();
        const show = (next) => ending.signal.aborted || setState(next);
        const listener = (message) => latest.current(message);
        connection.subscribe(channel, listener, {...JSON.parse(asked), signal: ending.signal}).then(
            () => show(SUBSCRIBED),
            (error) => show({isSubscribed: false, error}),
        );
        const forget = connection.on("ended", ({subscription, errorCode, message}) => {
            if (subscription === channel) {
                show({isSubscribed: false, error: Object.assign(new Error(message), {errorCode})});
            }
        });
        return () => {
            forget();
            ending.abort();
            setState(ASKED);
        };
    }, [connection, channel, asked]);
    return state;
}

/**
 * The members of the channel while the component is mounted, as {members, id, error}: `id` is the member that this page is. With
 * other `data`, the page is present with these. With null in place of the channel, it waits.
 * @param options {enter, data}: whether the page is present, and with which data
 */
export function usePresence(connection, channel, {enter = true, data = null} = {}) {
    const [state, setState] = useState(ABSENT);
    const current = useRef(null);
    const asked = JSON.stringify(data);
    useEffect(() => {
        if (channel === null) {
            return undefined;
        }
        const presence = connection.presence(channel, {enter: false});
        const show = () => setState({members: presence.members, id: presence.id, error: presence.error});
        const forget = presence.on(show);
        show(); // what another component has learned already, such as a refusal, is no change
        current.current = presence;
        return () => {
            current.current = null;
            forget();
            presence.close();
            setState(ABSENT);
        };
    }, [connection, channel]);
    useEffect(() => {
        const presence = current.current;
        if (presence !== null) {
            (enter ? presence.enter(JSON.parse(asked)) : presence.leave()).catch(() => {}); // `error` says why
        }
    }, [connection, channel, enter, asked]);
    return state;
}

/** The outbox of the connection, as {waiting, publish}: how many publishes wait for the server, and what adds one. */
export function useOutbox(connection) {
    const waiting = useSyncExternalStore(
        useCallback((changed) => connection.on("outbox", changed), [connection]),
        () => connection.outbox.waiting,
        () => 0,
    );
    const publish = useCallback((channel, data, options) => connection.outbox.publish(channel, data, options), [connection]);
    return {waiting, publish};
}

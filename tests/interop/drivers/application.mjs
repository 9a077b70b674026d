/*
 * Applications on the official cometd client, in a process that may be killed at any moment: `node application.mjs SPEC`.
 *
 * SPEC and what is told are those of tests/faults/application.py. With `settle` an application uses update.js, and its listeners
 * come late; without, it has the official client with session.js only, and subscribes in the handshake's callback.
 */
import fs from "node:fs";
import {adapt} from "cometd-nodejs-client";
import {AckExtension, CometD} from "cometd";
import {SessionExtension} from "../../../extensions/session.js";
import {UpdateExtension} from "../../../extensions/update.js";

adapt();
console.debug = console.info = console.warn = () => {}; // the standard output is for events

const LATEST_MS = 600;
const {url, seed, apps} = JSON.parse(process.argv[2]);
let state = seed;

/** A number in [0, 1), the same ones for the same seed. */
function random() {
    state = (state * 48271 + 11) % 2147483647;
    return state / 2147483647;
}

/** So that a kill right after this cannot take it back. */
function tell(event, fields) {
    fs.writeSync(1, JSON.stringify({event, ...fields}) + "\n");
}

function live({name, resume, transport, settle, channels}) {
    const cometd = new CometD();
    const storage = {
        getItem: () => resume ?? null,
        setItem: (key, value) => tell("resume", {name, resume: value}),
        removeItem: () => {},
    };
    const idOf = (message) => message.id ?? message.ext?.update?.id;

    function take(message) {
        if (settle && random() < 0.03) {
            tell("rejected", {name, id: idOf(message)});
            throw {errorCode: "user.update.error", message: "no"};
        }
        tell("taken", {name, id: idOf(message)});
    }

    function hear(message) {
        if (settle && random() < 0.2) {
            return new Promise((resolve) => setTimeout(resolve, random() * 20)).then(() => take(message));
        }
        return take(message);
    }

    /** A subscribe that fails takes the listener away, and an erased topic the subscription. */
    function subscribe(channel, isOver) {
        const again = () => isOver() || subscribe(channel, isOver);
        const handle = cometd.subscribe(channel, listener, (reply) => reply.successful || setTimeout(again, 100));

        function listener(message) {
            if (message.ext?.update?.state === "ERASED") {
                setTimeout(() => {
                    if (!isOver()) {
                        cometd.unsubscribe(handle);
                        again();
                    }
                });
                return undefined;
            }
            return hear(message);
        }
    }

    async function listen(handshake) {
        const isOver = () => cometd.isDisconnected() || handshake !== handshakes;
        for (const channel of channels) {
            if (settle && random() < 0.7) {
                await new Promise((resolve) => setTimeout(resolve, random() * LATEST_MS));
                if (isOver()) {
                    return;
                }
            }
            subscribe(channel, isOver);
        }
        if (!hasBox) {
            hasBox = true;
            cometd.addListener("/service/**", hear);
        }
        tell("ready", {name});
    }

    let handshakes = 0;
    let hasBox = false;
    cometd.onListenerException = () => {};
    cometd.configure({url, logLevel: "error", backoffIncrement: 100, maxBackoff: 300});
    cometd.getTransportTypes().filter((type) => type !== transport).forEach((type) => cometd.unregisterTransport(type));
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("session", new SessionExtension({name}, {storage}));
    if (settle) {
        cometd.registerExtension("update", new UpdateExtension());
    }
    cometd.addListener("/meta/handshake", (reply) => {
        if (reply.successful) {
            handshakes += 1;
            listen(handshakes);
        } else if (reply.failure && handshakes === 0) {
            process.exit(1); // there is no server at the moment, and the client does not try a WebSocket again then
        } else if (reply.advice?.reconnect === "none") {
            setTimeout(() => cometd.handshake(), 200); // somebody is this session still
        }
    });
    cometd.handshake();
}

apps.forEach(live);
process.stdin.resume();

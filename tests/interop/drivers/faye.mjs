/* Drives Faye's client. It always makes its handshake by long-polling, subscribes again by itself, and knows no ack. */
import faye from "faye";
import {obey, tell} from "./wire.mjs";

let client;
let transport;
let unsubscribed;

/** Resolves with the outcome of a publication or subscription; Faye reports refusals by rejecting. */
async function outcome(promise) {
    try {
        await promise;
        return {successful: true, error: null};
    } catch (problem) {
        return {successful: false, error: `${problem.code}:${problem.params.join(",")}:${problem.message}`};
    }
}

const witness = {
    incoming(message, pass) {
        if (message.data !== undefined) {
            tell({event: "delivered", channel: message.channel, data: message.data});
        }
        if (message.successful && message.channel === "/meta/handshake") {
            tell({event: "handshaken", clientId: message.clientId});
        }
        if (message.successful && message.channel === "/meta/connect") {
            tell({event: "connected", transport, advice: message.advice ?? null});
        }
        if (message.successful && message.channel === "/meta/subscribe") {
            tell({event: "subscribed", channel: message.subscription});
        }
        if (message.successful === false) {
            tell({event: "unsuccessful", channel: message.channel, error: message.error ?? null, advice: message.advice ?? null});
        }
        if (message.channel === "/meta/unsubscribe") {
            unsubscribed(message);
        }
        pass(message);
    },
    outgoing(message, pass) {
        if (message.channel === "/meta/connect") {
            transport = message.connectionType;
            tell({event: "connecting", transport});
        }
        pass(message);
    }
};

obey({
    async open({url, transports, retry_s}) {
        client = new faye.Client(url, {retry: retry_s});
        for (const type of ["websocket", "eventsource", "long-polling"]) {
            // Long-polling carries the handshake and cannot be left out.
            if (type !== "long-polling" && !transports.includes(type)) {
                client.disable(type);
            }
        }
        client.addExtension(witness);
        await new Promise(resolve => client.connect(resolve));
        return {clientId: client._dispatcher.clientId, transport: client._dispatcher.connectionType};
    },
    subscribe: ({channel}) => outcome(client.subscribe(channel).withChannel((name, data) => {
        tell({event: "message", subscription: channel, channel: name, data});
    })),
    /** Faye tells nobody about the answer, so this one waits for it on the wire. */
    unsubscribe: ({channel}) => new Promise(resolve => {
        unsubscribed = reply => resolve({successful: reply.successful, error: reply.error ?? null});
        client.unsubscribe(channel);
    }),
    publish: ({channel, data}) => outcome(client.publish(channel, data)),
    /** Faye sends what one turn of the event loop publishes as one request, where the transport can. */
    batch: async ({messages}) => ({
        replies: await Promise.all(messages.map(({channel, data}) => outcome(client.publish(channel, data))))
    }),
    disconnect: () => outcome(client.disconnect())
});

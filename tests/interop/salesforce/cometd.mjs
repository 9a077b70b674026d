/* The `cometd` client as a consumer of Salesforce's streaming API. Prints the number of each order. */
import {adapt} from "cometd-nodejs-client";

adapt();
const {CometD} = await import("cometd");
const [url, token, channel] = process.argv.slice(2);
let position = -1;

const client = new CometD();
client.configure({url, requestHeaders: {Authorization: `Bearer ${token}`}, appendMessageTypeToURL: false, logLevel: "warn"});
client.unregisterTransport("websocket");
client.registerExtension("replay", {
    incoming(message) {
        position = message.data?.event?.replayId ?? position;
        return message;
    },
    outgoing(message) {
        if (message.channel === "/meta/subscribe") {
            message.ext = {...message.ext, replay: {[channel]: position}};
        }
        return message;
    }
});
client.addListener("/meta/handshake", (reply) => {
    if (reply.successful) {
        client.subscribe(channel, (message) => console.log(message.data.payload.No__c));
    }
});
client.handshake();

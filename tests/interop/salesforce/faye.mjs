/* Faye's client as a consumer of Salesforce's streaming API; it subscribes again by itself. Prints the number of each order. */
import faye from "faye";

const [url, token, channel] = process.argv.slice(2);
let position = -1;

const client = new faye.Client(url);
client.disable("websocket");
client.setHeader("Authorization", `OAuth ${token}`);
client.addExtension({
    incoming(message, pass) {
        position = message.data?.event?.replayId ?? position;
        pass(message);
    },
    outgoing(message, pass) {
        if (message.channel === "/meta/subscribe") {
            message.ext = {...message.ext, replay: {[channel]: position}};
        }
        pass(message);
    }
});
client.subscribe(channel, (data) => console.log(data.payload.No__c));

/*
 * The browser's half of names with the official cometd client: `node session.mjs URL TRANSPORT`. A page has a session, is reloaded
 * while messages come, goes on with it, and is taken over in the end. Prints what it saw as JSON.
 */
import {adapt} from "cometd-nodejs-client";
import {AckExtension, CometD} from "cometd";
import {SessionExtension} from "../../../extensions/session.js";

adapt();

const [url, transport] = process.argv.slice(2);
const kept = new Map();
const storage = {
    getItem: name => kept.get(name) ?? null,
    setItem: (name, value) => kept.set(name, value),
    removeItem: name => kept.delete(name)
};

/** Opens a page: a client with its extensions. Resolves when the handshake is answered. */
function open(asked, options) {
    const cometd = new CometD();
    const session = new SessionExtension(asked, options);
    cometd.configure({url, logLevel: "error"});
    cometd.getTransportTypes().filter(type => type !== transport).forEach(type => cometd.unregisterTransport(type));
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("session", session);
    const ended = new Promise(resolve => {
        cometd.addListener("/meta/connect", reply => {
            if (!reply.successful && reply.advice?.reconnect === "none") {
                resolve(reply.error);
            }
        });
    });
    return new Promise(resolve => cometd.handshake(reply => resolve({cometd, session, reply, ended})));
}

/** Resolves when the channel is subscribed to, with a function that resolves with the next message. */
function hear(page, channel) {
    const waiting = [];
    const came = [];
    const push = message => (waiting.length ? waiting.shift()(message.data) : came.push(message.data));
    const next = () => new Promise(resolve => (came.length ? resolve(came.shift()) : waiting.push(resolve)));
    return new Promise(resolve => page.cometd.subscribe(channel, push, () => resolve(next)));
}

const stored = (page, data) => new Promise(resolve => {
    const message = {ext: {publish: {persistent: true}}};
    page.cometd.publish("/orders", data, message, resolve);
});

const seen = {};
const other = await open({});
seen.anonymous = other.session.name;

const page = await open({name: "client/page/1"}, {storage});
seen.first = [page.session.name, page.session.reply.reconnected];
const next = await hear(page, "/orders");
// The answer to a subscribe of an earlier login comes late: the listener stays.
page.cometd.receive({channel: "/meta/subscribe", id: "0", subscription: "/orders", successful: false, error: "402::session_unknown"});
await stored(other, 1);
seen.heard = [await next()];

// A reload: the page is gone without a word, and its storage stays.
const again = await open({name: "client/page/1"}, {storage});
seen.again = again.session.reply.reconnected;
seen.ended = await page.ended;
const nextAgain = await hear(again, "/orders");
await stored(other, 2);
let data = await nextAgain();
while (data !== 2) {
    data = await nextAgain();
}

const stranger = await open({name: "client/page/1"});
seen.refused = [stranger.reply.error, stranger.session.refusal.errorCode, stranger.session.resume];

await new Promise(resolve => again.cometd.disconnect(resolve));
seen.kept = kept.size;
console.log(JSON.stringify(seen));
process.exit(0);

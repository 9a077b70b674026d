/*
 * The browser's half of request and reply with the official cometd client: `node request.mjs URL TRANSPORT OTHER`. A page asks
 * over one transport, others answer over the other; one of those has never heard of us. Prints what it saw as JSON.
 */
import {adapt} from "cometd-nodejs-client";
import {AckExtension, CometD} from "cometd";
import {createResponse, ErrorAnswer, RequestExtension} from "../../../extensions/request.js";
import {UpdateExtension} from "../../../extensions/update.js";

adapt();

const [url, transport, other] = process.argv.slice(2);

/** Opens a page: a client with these extensions. Resolves when the handshake is answered. */
function open(type, extensions = {}) {
    const cometd = new CometD();
    cometd.configure({url, logLevel: "error"});
    cometd._warn = () => {}; // of failures that are wanted
    cometd.getTransportTypes().filter(each => each !== type).forEach(each => cometd.unregisterTransport(each));
    for (const [name, extension] of Object.entries(extensions)) {
        cometd.registerExtension(name, extension);
    }
    return new Promise(resolve => cometd.handshake(reply => resolve({cometd, reply, ...extensions})));
}

const subscribed = (page, channel, listener) => new Promise(resolve => page.cometd.subscribe(channel, listener, resolve));
const replying = (page, channel, answer) => new Promise(resolve => page.request.reply(channel, answer, {}, resolve));
const outcome = asking => asking.then(answer => answer.data, error => [error.name, error.errorCode ?? null, error.message]);

const seen = {};
const page = await open(transport, {ack: new AckExtension(), request: new RequestExtension()});
const helper = await open(other, {
    ack: new AckExtension(), update: new UpdateExtension(), request: new RequestExtension({timeout: 5000})
});
const stock = await open(other);
const ask = page.request.request.bind(page.request);

seen.hasId = /^[0-9a-f]{32}$/.test(page.request.replyId) && page.request.replyId === page.reply.ext.session.replyId;

// A client that has never heard of us answers by a publish.
await subscribed(stock, "/stock", message => stock.cometd.publish(message.ext.replyTo, {got: message.data}));
const data = {n: [1]};
const asking = ask("/stock", data);
data.n.push("too late");
const answer = await asking;
seen.stock = answer.data;
seen.untouched = data;
const [, , id, serial] = answer.channel.split("/");
seen.format = id === page.request.replyId && /^4\d{6}$/.test(serial);

// Ours answers, with a promise or an exception, at once and many times.
await replying(helper, "/power", async message => message.data ** 2);
await replying(helper, "/power/strict", () => {
    throw new ErrorAnswer("user.illegalArgument", "no number", {given: "x"});
});
await replying(helper, "/power/broken", () => {
    throw new Error("a secret");
});
seen.many = (await Promise.all([...Array(100).keys()].map(n => ask("/power", n)))).every((each, n) => each.data === n * n);
seen.strict = await outcome(ask("/power/strict", 1));
seen.broken = await outcome(ask("/power/broken", 1));

// A service of the server, and one that the other page asks.
seen.service = await outcome(ask("/asked/square", 9));
seen.back = await outcome(helper.request.request("/asked/square", 3));

// Nobody answers in time, and then somebody does, twice.
await subscribed(stock, "/slow", message => {
    const {channel, data, ext} = createResponse(message);
    setTimeout(() => {
        stock.cometd.publish(channel, data, {ext});
        stock.cometd.publish(channel, data, {ext});
    }, 250);
});
seen.late = await outcome(ask("/slow", 1, {timeout: 100}));
seen.slow = await outcome(ask("/slow", 2, {timeout: 5000}));
await outcome(ask("/power", 1));
while (page.request.late < 2 || page.request.duplicates < 1) {
    await new Promise(resolve => setTimeout(resolve, 20));
}
seen.counted = [page.request.late, page.request.duplicates, page.request.pending];

// What cannot be asked.
seen.refused = await outcome(ask("/closed/a", 1));

// The same page with a new session has another ID, and asks on.
const first = page.request.replyId;
const waiting = outcome(ask("/nobody", 1));
while (!page.request.pending) {
    await new Promise(resolve => setTimeout(resolve, 5));
}
await new Promise(resolve => page.cometd.disconnect(resolve));
seen.lost = await waiting;
await new Promise(resolve => page.cometd.handshake(resolve));
seen.again = [first === page.request.replyId, await outcome(ask("/power", 5))];

console.log(JSON.stringify(seen));
process.exit(0);

/*
 * A receiver with the browser's half of `update` and the official cometd client: `node update.mjs URL TRANSPORT NAME CHANNEL
 * SESSION VERSION`. How a listener behaves is in the message: see tests/functional/receivers.py. Tells what happens, a JSON line each;
 * says goodbye when its standard input ends.
 */
import {setTimeout as sleep} from "node:timers/promises";
import {adapt} from "cometd-nodejs-client";
import {SessionExtension} from "../../../extensions/session.js";
import {UpdateExtension} from "../../../extensions/update.js";

adapt();
console.debug = () => {}; // what is not taken is told below
console.info = console.warn; // the standard output is for events

const [url, transport, name, channel, session, version] = process.argv.slice(2);
const {AckExtension, CometD} = await load(version);
const tell = (event, fields = {}) => console.log(JSON.stringify({event, ...fields}));
const update = new UpdateExtension(JSON.parse(session), {onRejected: status => tell("rejected", status)});
const cometd = new CometD();
const times = new Map();

/** Versions 8 and 9 are ES modules; the older ones are CommonJS, an extension a file. */
async function load(number) {
    const library = await import(number === "9" ? "cometd" : `cometd-${number}`);
    return library.AckExtension
        ? library
        : {CometD: library.default.CometD, AckExtension: (await import(`cometd-${number}/AckExtension.js`)).default};
}

async function work(message, {hold, working}) {
    const alarm = working && setInterval(() => update.working(message), working);
    await sleep(hold);
    clearInterval(alarm);
}

function fail({code, why}) {
    if (code === "") {
        throw new Error(why);
    }
    throw {errorCode: code, message: why};
}

function hear(message) {
    const {data} = message;
    times.set(data.n, (times.get(data.n) ?? 0) + 1);
    tell("heard", {n: data.n, redeliver: message.ext.update.redeliver ?? 0, id: message.ext.update.id});
    const isMeant = data.only === undefined || data.only === name;
    const fails = isMeant && data.code !== undefined && times.get(data.n) <= (data.times ?? Infinity);
    if (data.hold) {
        return work(message, data).then(() => fails && fail(data));
    }
    return fails ? fail(data) : undefined;
}

cometd.onListenerException = () => {};
cometd.configure({url, logLevel: "error", backoffIncrement: 100});
cometd.getTransportTypes().filter(type => type !== transport).forEach(type => cometd.unregisterTransport(type));
cometd.registerExtension("ack", new AckExtension());
cometd.registerExtension("session", new SessionExtension({name}));
cometd.registerExtension("update", update);
cometd.handshake(reply => {
    if (!reply.successful || cometd.isDisconnected()) {
        return;
    }
    tell("handshaken", {granted: update.isGranted});
    cometd.subscribe(channel, hear, () => tell("subscribed"));
});

process.stdin.on("end", () => cometd.isDisconnected() ? process.exit(0) : cometd.disconnect(() => process.exit(0)));
process.stdin.resume();

/** The list that all clients obey: what update.js reports for what listeners do. Run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";

globalThis.window = globalThis;
const {AckExtension, CometD, Transport} = await import("../../static/vendor/cometd/cometd.js");
const {UpdateExtension} = await import("../../extensions/update.js");
const {isFull, isTemporary} = await import("../../extensions/replies.js");

const {cases, handshakes, publishes} = JSON.parse(readFileSync(new URL("../clients/statuses.json", import.meta.url), "utf8"), written);
const GRANTED = {ack: true, session: {update: true, reconnected: false, unclaimed: true}};

/** A value of the list, with long texts written out. */
function written(_, value) {
    const length = value?.length ?? Infinity;
    return typeof value?.repeat === "string" ? value.repeat.repeat(value.times).slice(0, length) : value;
}

/** A transport whose requests the test answers: all at once, but for the connect. */
class Wire extends Transport {
    statuses = [];
    handshake = null;
    #held = null;
    #resolve = null;

    accept() {
        return true;
    }

    send(envelope) {
        for (const message of envelope.messages) {
            this.statuses.push(...(message.channel === "/service/update" ? message.data : (message.ext?.update ?? [])));
            const reply = {id: message.id, channel: message.channel, successful: true, ext: {}};
            const answer = (before = []) => envelope.onSuccess([...before, reply]);
            if (message.channel === "/meta/connect") {
                reply.ext.ack = 1;
                this.#held = answer;
                this.#resolve?.();
            } else if (message.channel === "/meta/handshake") {
                this.handshake = message;
                setTimeout(() => {
                    Object.assign(reply, {clientId: "c", version: "1.0", supportedConnectionTypes: ["wire"], ext: GRANTED});
                    answer();
                });
            } else {
                setTimeout(answer);
            }
        }
    }

    /** Answers the connect with messages, as soon as one is held. */
    async deliver(...messages) {
        if (this.#held === null) {
            await new Promise((resolve) => (this.#resolve = resolve));
        }
        const answer = this.#held;
        this.#held = this.#resolve = null;
        answer(messages);
    }
}

function page(options, asked) {
    const cometd = new CometD();
    const wire = new Wire();
    cometd.getTransportTypes().forEach((type) => cometd.unregisterTransport(type));
    cometd.registerTransport("wire", wire);
    cometd.configure({url: "http://nowhere/cometd", logLevel: "error"});
    const update = new UpdateExtension(asked, options);
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("update", update);
    cometd.onListenerException = () => {};
    cometd.handshake();
    return {cometd, wire, update};
}

/** What the listeners of a case do, message by message. */
function acting(update, steps, heard) {
    return (message) => {
        const {does, value, ...fault} = steps[Math.min(heard.length, steps.length - 1)];
        heard.push(message.ext.update.id);
        const thrown = () => Object.assign(new Error(fault.message), fault);
        if (does === "throw") {
            throw thrown();
        } else if (does === "throwValue") {
            throw value;
        } else if (does === "reject") {
            return Promise.reject(thrown());
        } else if (does === "resolve") {
            return Promise.resolve();
        } else if (does === "work") {
            update.working(message);
            return new Promise(() => {});
        }
        assert.equal(does, "return");
    };
}

/** Two more connects: the first one, or a publish before it, has told all that there was to tell. */
async function settled(wire) {
    await wire.deliver();
    await new Promise((resolve) => setTimeout(resolve));
    await wire.deliver();
}

for (const {name, options, listeners, late = [], deliver, statuses, heard, only = ["javascript"]} of cases) {
    test(name, {skip: only.includes("javascript") ? false : "another client's case"}, async () => {
        const {cometd, wire, update} = page(options);
        await wire.deliver();
        const found = [...listeners, ...late].map(() => []);
        listeners.forEach((steps, at) => cometd.subscribe("/a", acting(update, steps, found[at])));
        for (const {channel = "/a", ...fields} of deliver) {
            await wire.deliver({channel, data: {}, ext: {update: fields}});
            await settled(wire);
        }
        late.forEach((steps, at) => cometd.subscribe("/a", acting(update, steps, found[listeners.length + at])));
        await new Promise((resolve) => setTimeout(resolve));
        await settled(wire);
        assert.deepEqual(wire.statuses, statuses);
        assert.deepEqual(found, heard);
        cometd.disconnect();
    });
}

for (const {name, asked, session} of handshakes) {
    test(`the handshake asks for ${name}`, async () => {
        const {cometd, wire} = page({}, asked);
        await wire.deliver();
        assert.deepEqual(wire.handshake.ext.session, session);
        cometd.disconnect();
    });
}

for (const {error, errorCode, isRepeated} of publishes) {
    test(`a publish that was refused with ${error}`, () => {
        const reply = {successful: false, error, ext: {publish: errorCode ? {errorCode} : {}}};
        assert.equal(isTemporary(reply) || isFull(reply), isRepeated);
    });
}

/** How listeners settle their messages: the official client over a wire that the test holds. Run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {afterEach, test} from "node:test";

globalThis.window = globalThis;
const {AckExtension, CometD, Transport} = await import("../../static/vendor/cometd/cometd.js");
const {SessionExtension} = await import("../../extensions/session.js");
const {UpdateExtension} = await import("../../extensions/update.js");

const GRANTED = {ack: true, session: {update: true, reconnected: false}};
const LIMIT_MS = 20_000;

/** A transport that hands each request to the test, which answers it when it wants. */
class Wire extends Transport {
    requests = [];
    #waiting = [];

    accept() {
        return true;
    }

    send(envelope) {
        for (const message of envelope.messages) {
            const request = {
                message,
                reply: (fields = {}, before = []) => {
                    const answer = {id: message.id, channel: message.channel, successful: true, ...fields};
                    envelope.onSuccess([...before, answer]);
                },
                fail: () => envelope.onFailure(null, [message], {reason: "cut"}),
            };
            this.requests.push(request);
        }
        this.#waiting.splice(0).forEach((look) => look());
    }

    /** The next request on this channel, taken off the list. */
    async next(channel) {
        for (const deadline = Date.now() + LIMIT_MS; ; ) {
            const at = this.requests.findIndex((request) => request.message.channel === channel);
            if (at >= 0) {
                return this.requests.splice(at, 1)[0];
            }
            await new Promise((resolve, reject) => {
                const timer = setTimeout(() => reject(new Error(`no request on ${channel}`)), deadline - Date.now());
                this.#waiting.push(() => {
                    clearTimeout(timer);
                    resolve();
                });
            });
        }
    }
}

const pages = [];

/** A page with a session; `hold` waits for the next connect, which the test may answer: with messages first, if it has any. */
async function open({options = {}, asked, granted = GRANTED, before = () => {}, extensions = null} = {}) {
    const cometd = new CometD();
    const wire = new Wire();
    const logged = [];
    cometd.getTransportTypes().forEach((type) => cometd.unregisterTransport(type));
    cometd.registerTransport("wire", wire);
    cometd.configure({url: "http://nowhere/cometd", logLevel: "warn", backoffIncrement: 1});
    cometd._warn = cometd._info = (...words) => logged.push(words);
    before(cometd);
    const update = new UpdateExtension(asked, options);
    const list = extensions?.(update) ?? [["ack", new AckExtension()], ["update", update]];
    list.forEach(([name, extension]) => cometd.registerExtension(name, extension));
    cometd.handshake();
    const shake = await wire.next("/meta/handshake");
    shake.reply({clientId: "c", version: "1.0", supportedConnectionTypes: ["wire"], ext: granted});
    const page = {
        cometd,
        wire,
        update,
        logged,
        shake,
        hold: () => wire.next("/meta/connect"),
        told: () => wire.next("/service/update"),
    };
    pages.push(page);
    const first = await page.hold();
    first.reply({ext: {ack: 1}});
    page.connect = await page.hold();
    return page;
}

afterEach(() => {
    for (const {cometd, wire} of pages.splice(0)) {
        cometd.disconnect();
        wire.requests.find(({message}) => message.channel === "/meta/disconnect")?.reply();
    }
});

const delivery = (id, data = {}, update = {}) => ({channel: "/a", data, ext: {update: {id, ...update}}});
const ok = (id) => ({id, state: "OK"});

/** Delivers with the reply to the held connect; the statuses of the next one, which is held then. */
async function deliver(page, ...messages) {
    page.connect.reply({ext: {ack: 2}}, messages);
    page.connect = await page.hold();
    return page.connect.message.ext?.update ?? [];
}

/** A promise and what settles it. */
function later() {
    const made = {};
    made.promise = new Promise((resolve, reject) => Object.assign(made, {resolve, reject}));
    return made;
}

test("the handshake asks for it, beside what the application and the session extension ask", async () => {
    const orders = [
        (update) => [["ack", new AckExtension()], ["session", new SessionExtension({name: "joe/1"})], ["update", update]],
        (update) => [["update", update], ["session", new SessionExtension({name: "joe/1"})], ["ack", new AckExtension()]],
    ];
    for (const extensions of orders) {
        const {shake, update} = await open({asked: {ackWait: 500}, extensions});
        const dispatcher = {retries: 5, delay: 1000, factor: 2, maxDelay: 60000, absence: false};
        const session = {name: "joe/1", ackWait: 500, update: true, settle: "message", dispatcher};
        const {nonce, ...asked} = shake.message.ext.session;
        assert.deepEqual({...shake.message.ext, session: asked}, {ack: true, session});
        assert.equal(nonce.length, 32);
        assert.equal(update.isGranted, true);
    }
});

test("a page may ask for retries of its own, and a delay of its own does not grow", async () => {
    for (const [asked, dispatcher] of [
        [{retries: 0}, {retries: 0, delay: 1000, factor: 2, maxDelay: 60000, absence: false}],
        [{delay: 500}, {retries: 5, delay: 500, factor: 1, absence: false}],
        [{delay: 500, factor: 3, absence: true}, {retries: 5, delay: 500, factor: 3, absence: true}],
    ]) {
        const {shake} = await open({asked: {dispatcher: asked}});
        assert.deepEqual(shake.message.ext.session.dispatcher, dispatcher);
    }
});

test("what listeners return in time is told with the next connect, all at once", async () => {
    const page = await open();
    page.cometd.subscribe("/a", () => {});
    assert.deepEqual(await deliver(page, delivery("1"), delivery("2"), delivery("3")), [ok("1"), ok("2"), ok("3")]);
    assert.deepEqual(await deliver(page, delivery("4")), [ok("4")]);
});

test("what a listener throws is told, with its code if it has one", async () => {
    const page = await open();
    const thrown = [
        Object.assign(new Error("not today"), {errorCode: "user.update.holdback"}),
        {errorCode: "communication.timeout", message: "late"},
        {errorCode: "user.update.error"},
        new Error("a bug"),
        "text",
        undefined,
        {errorCode: 7, message: "x".repeat(600)},
    ];
    page.cometd.subscribe("/a", ({data}) => {
        throw thrown[data];
    });
    const statuses = await deliver(page, ...thrown.map((_, at) => delivery(`${at}`, at)));
    const internal = "user.update.internalError";
    assert.deepEqual(statuses, [
        {id: "0", errorCode: "user.update.holdback", message: "not today"},
        {id: "1", errorCode: "communication.timeout", message: "late"},
        {id: "2", errorCode: "user.update.error", message: ""},
        {id: "3", errorCode: internal, message: "a bug"},
        {id: "4", errorCode: internal, message: "text"},
        {id: "5", errorCode: internal, message: "undefined"},
        {id: "6", errorCode: internal, message: "x".repeat(500)},
    ]);
});

test("a promise settles its message when it settles, at once, though a connect is held", async () => {
    const page = await open();
    const works = {1: later(), 2: later()};
    page.cometd.subscribe("/a", ({data}) => works[data].promise);
    assert.deepEqual(await deliver(page, delivery("1", 1), delivery("2", 2)), []);
    works[2].reject({errorCode: "user.update.error", message: "no"});
    const failed = await page.told();
    assert.deepEqual(failed.message.data, [{id: "2", errorCode: "user.update.error", message: "no"}]);
    failed.reply();
    works[1].resolve();
    const settled = await page.told();
    assert.deepEqual(settled.message.data, [ok("1")]);
    settled.reply();
    assert.deepEqual(await deliver(page), []);
});

test("statuses that come while others are on their way go together", async () => {
    const page = await open();
    const works = [later(), later(), later()];
    page.cometd.subscribe("/a", ({data}) => works[data].promise);
    await deliver(page, delivery("0", 0), delivery("1", 1), delivery("2", 2));
    works[0].resolve();
    const first = await page.told();
    works[1].resolve();
    works[2].resolve();
    await works[2].promise;
    assert.deepEqual(page.wire.requests.map(({message}) => message.channel), ["/meta/subscribe"]);
    first.reply();
    assert.deepEqual((await page.told()).message.data, [ok("1"), ok("2")]);
});

test("all listeners of a message have to be done, and the first failure counts", async () => {
    const page = await open();
    const slow = later();
    page.cometd.subscribe("/a", () => slow.promise);
    page.cometd.subscribe("/a", () => {
        throw new Error("second");
    });
    page.cometd.addListener("/*", () => Promise.reject(new Error("third")));
    assert.deepEqual(await deliver(page, delivery("1")), []);
    slow.reject(new Error("first in the list, last in time"));
    const told = await page.told();
    assert.deepEqual(told.message.data, [{id: "1", errorCode: "user.update.internalError", message: "second"}]);
});

test("the application's own handler hears exceptions and rejections as ever", async () => {
    const heard = [];
    const first = (reason, handle, isListener) => heard.push(["first", reason.message, handle.channel, isListener]);
    const page = await open({before: (cometd) => (cometd.onListenerException = first)});
    const handle = page.cometd.subscribe("/a", () => {
        throw new Error("thrown");
    });
    await deliver(page, delivery("1"));
    page.cometd.unsubscribe(handle);
    const before = page.cometd.onListenerException;
    page.cometd.onListenerException = (...given) => {
        heard.push(["second"]);
        before(...given);
    };
    page.cometd.addListener("/a", async () => {
        throw new Error("rejected");
    });
    await deliver(page, delivery("2"));
    assert.deepEqual(heard, [["first", "thrown", "/a", false], ["second"], ["first", "rejected", "/a", true]]);
    assert.deepEqual(page.logged, []);
});

test("without a handler the client logs, for rejections too", async () => {
    const page = await open();
    page.cometd.subscribe("/a", () => {
        throw new Error("thrown");
    });
    page.cometd.subscribe("/a", async () => {
        throw new Error("rejected");
    });
    await deliver(page, delivery("1"));
    assert.deepEqual(page.logged.map((words) => words.at(-1).message), ["thrown", "rejected"]);
});

test("a handler that throws does no harm", async () => {
    const broken = () => {
        throw new Error("handler");
    };
    const page = await open({before: (cometd) => (cometd.onListenerException = broken)});
    page.cometd.subscribe("/a", () => Promise.reject(new Error("no")));
    const [{message}] = await deliver(page, delivery("1"));
    assert.equal(message, "no");
    assert.equal(page.logged.length, 1);
});

test("listeners keep their scope and their handles", async () => {
    const page = await open();
    const scope = {
        seen: [],
        hear(message) {
            this.seen.push(message.data);
        },
    };
    const handles = [page.cometd.subscribe("/a", scope, "hear"), page.cometd.subscribe("/a", scope, scope.hear)];
    const listener = page.cometd.addListener("/a", scope, "hear");
    await deliver(page, delivery("1", 1));
    assert.deepEqual(scope.seen, [1, 1, 1]);
    page.cometd.removeListener(listener);
    handles.forEach((handle) => page.cometd.unsubscribe(handle));
    await page.wire.next("/meta/unsubscribe");
    await deliver(page, delivery("2", 2));
    assert.deepEqual(scope.seen, [1, 1, 1]);
    assert.throws(() => page.cometd.subscribe("/a", scope, "nothing"), /Invalid callback/);
    assert.throws(() => page.cometd.addListener("/a"), /arguments number/);
});

test("what a listener throws that was there before is told too", async () => {
    const before = (cometd) =>
        cometd.addListener("/a", () => {
            throw new Error("early");
        });
    const page = await open({before});
    const [{message}] = await deliver(page, delivery("1"));
    assert.equal(message, "early");
});

test("a message that was settled is not heard twice, and its status goes again", async () => {
    const page = await open();
    const heard = [];
    page.cometd.subscribe("/a", ({ext}) => heard.push(ext.update.id));
    await deliver(page, delivery("1"));
    assert.deepEqual(await deliver(page, delivery("1", {}, {redeliver: 1})), [ok("1")]);
    assert.deepEqual(heard, ["1"]);
    assert.deepEqual(await deliver(page, delivery("1", {}, {initial: true})), [ok("1")]);
    assert.deepEqual(heard, ["1", "1"]);
});

test("a message that failed, or is at work, is heard again", async () => {
    const page = await open();
    const works = [() => Promise.reject(new Error("no")), () => new Promise(() => {}), () => {}];
    let heard = 0;
    page.cometd.subscribe("/a", () => works[heard++]());
    assert.equal((await deliver(page, delivery("1")))[0].errorCode, "user.update.internalError");
    assert.deepEqual(await deliver(page, delivery("1", {}, {redeliver: 1})), []);
    assert.deepEqual(await deliver(page, delivery("1", {}, {redeliver: 2})), [ok("1")]);
    assert.equal(heard, 3);
});

test("a failure after an OK of the same message is no news", async () => {
    const page = await open();
    const works = [later(), later()];
    let heard = 0;
    page.cometd.subscribe("/a", () => works[heard++].promise);
    await deliver(page, delivery("1"));
    await deliver(page, delivery("1", {}, {redeliver: 1}));
    works[0].resolve();
    const told = await page.told();
    assert.deepEqual(told.message.data, [ok("1")]);
    works[1].reject(new Error("late"));
    told.reply();
    assert.deepEqual(await deliver(page), []);
});

test("only so many ids are remembered", async () => {
    const page = await open({options: {remembered: 2}});
    let heard = 0;
    page.cometd.subscribe("/a", () => {
        heard += 1;
    });
    await deliver(page, delivery("1"), delivery("2"), delivery("3"));
    await deliver(page, delivery("1"), delivery("3"));
    assert.equal(heard, 4);
});

test("statuses of a connect that was not answered go again with the next", async () => {
    const page = await open();
    page.cometd.subscribe("/a", () => {});
    await deliver(page, delivery("1"));
    page.connect.fail();
    page.connect = await page.hold();
    assert.deepEqual(page.connect.message.ext.update, [ok("1")]);
    assert.deepEqual(await deliver(page), []);
});

test("statuses of a publish that was not answered go again, after a moment or with a connect", async () => {
    const page = await open();
    const works = [later(), later()];
    page.cometd.subscribe("/a", ({data}) => works[data].promise);
    await deliver(page, delivery("0", 0), delivery("1", 1));
    works[0].resolve();
    (await page.told()).fail();
    const again = await page.told();
    assert.deepEqual(again.message.data, [ok("0")]);
    again.fail();
    assert.deepEqual(await deliver(page), [ok("0")]);
    works[1].resolve();
    (await page.told()).reply({successful: false, error: "404::message_deleted"});
    assert.deepEqual(await deliver(page), [ok("1")]);
});

test("statuses that the server refuses are complained of, once, and go again", async (context) => {
    const {mock: complaints} = context.mock.method(console, "error", () => {});
    const page = await open();
    const work = later();
    page.cometd.subscribe("/a", () => work.promise);
    await deliver(page, delivery("1"));
    work.resolve();
    const refusal = {successful: false, error: "403:denied_by_security_policy:publish_denied"};
    (await page.told()).reply(refusal);
    const again = await page.told();
    assert.deepEqual(again.message.data, [ok("1")]);
    again.reply(refusal);
    assert.deepEqual(complaints.calls.map(({arguments: [text]}) => text.includes(refusal.error)), [true]);
    assert.deepEqual(await deliver(page), [ok("1")]);
});

test("what the server did not take is told, and not told it again", async () => {
    const rejected = [];
    const page = await open({options: {onRejected: (status) => rejected.push(status)}});
    const slow = later();
    page.cometd.subscribe("/a", ({data}) => (data === 2 ? slow.promise : undefined));
    await deliver(page, delivery("1", 1), delivery("2", 2));
    page.connect.reply({ext: {ack: 3, update: {rejected: [{...ok("1"), reason: "not open"}]}}});
    page.connect = await page.hold();
    assert.equal(page.connect.message.ext.update, undefined);
    slow.resolve();
    (await page.told()).reply({ext: {update: {rejected: [{...ok("2"), reason: "not open"}]}}});
    assert.deepEqual(rejected.map(({id, reason}) => [id, reason]), [["1", "not open"], ["2", "not open"]]);
});

test("work on a message can be told, and is no news after its end", async () => {
    const page = await open();
    const slow = later();
    let message;
    page.cometd.subscribe("/a", (delivered) => {
        message = delivered;
        return slow.promise;
    });
    await deliver(page, delivery("1"));
    page.update.working(message);
    const first = await page.told();
    assert.deepEqual(first.message.data, [{id: "1", state: "WORKING"}]);
    page.update.working(message);
    first.reply();
    slow.resolve();
    const last = await page.told();
    assert.deepEqual(last.message.data, [ok("1")]);
    page.update.working(message);
    page.update.working({channel: "/a"});
    last.reply();
    assert.deepEqual(await deliver(page), []);
});

test("no message is larger than what the client sends", async () => {
    const page = await open();
    page.cometd.subscribe("/a", () => {
        throw new Error("x".repeat(500));
    });
    const messages = Array.from({length: 20}, (_, at) => delivery(`${at}`));
    page.connect.reply({ext: {ack: 2}, advice: {reconnect: "retry", interval: 50, timeout: 60000}}, messages);
    page.connect = await page.hold();
    assert.deepEqual(page.wire.requests.map(({message}) => message.channel), ["/meta/subscribe"]); // they wait for the connect
    assert.ok(JSON.stringify(page.connect.message).length < 8192);
    const statuses = page.connect.message.ext.update;
    while (statuses.length < 20) {
        const told = await page.told();
        assert.ok(JSON.stringify(told.message).length < 8192);
        statuses.push(...told.message.data);
        told.reply();
    }
    assert.deepEqual(statuses.map(({id}) => id), Array.from({length: 20}, (_, at) => `${at}`));
});

test("work on a message is no news after its end, though it came twice", async () => {
    const page = await open();
    const works = [later(), later()];
    const heard = [];
    page.cometd.subscribe("/a", (message) => works[heard.push(message) - 1].promise);
    await deliver(page, delivery("1"));
    await deliver(page, delivery("1", {}, {redeliver: 1}));
    works[0].resolve();
    await works[0].promise;
    page.update.working(heard[1]);
    assert.deepEqual((await page.told()).message.data, [ok("1")]);
});

/** Has the session lost, and another handshake answered with this. */
async function lose(page, session) {
    page.connect.reply({successful: false, error: "402::session_unknown", advice: {reconnect: "handshake", interval: 0}});
    const shake = await page.wire.next("/meta/handshake");
    shake.reply({clientId: "d", version: "1.0", supportedConnectionTypes: ["wire"], ext: {ack: true, session}});
    page.cometd.subscribe("/a", () => {});
    page.connect = await page.hold();
    return page.connect.message.ext.update;
}

test("a new session is told nothing of the old one", async () => {
    const page = await open();
    const slow = later();
    page.cometd.subscribe("/a", ({data}) => (data === 2 ? slow.promise : undefined));
    await deliver(page, delivery("1", 1), delivery("2", 2));
    assert.equal(await lose(page, {update: true, reconnected: false}), undefined);
    slow.resolve();
    await slow.promise;
    assert.deepEqual(await deliver(page, delivery("1", 3)), [ok("1")]);
});

test("a session that was taken over is told what it was not told, and nothing is heard twice", async () => {
    const page = await open();
    const slow = later();
    let heard = 0;
    page.cometd.subscribe("/a", ({data}) => {
        heard += 1;
        return data === 2 ? slow.promise : undefined;
    });
    await deliver(page, delivery("1", 1), delivery("2", 2));
    assert.deepEqual(await lose(page, {update: true, reconnected: true}), [ok("1")]);
    slow.resolve();
    assert.deepEqual((await page.told()).message.data, [ok("2")]);
    assert.equal(heard, 2);
});

test("what is not told yet is told before the goodbye", async () => {
    const page = await open();
    page.cometd.subscribe("/a", () => {});
    page.connect.reply({ext: {ack: 2}}, [delivery("1")]);
    await Promise.resolve();
    page.cometd.disconnect();
    assert.deepEqual(page.wire.requests.slice(-2).map(({message}) => [message.channel, message.data, message.clientId]), [
        ["/service/update", [ok("1")], "c"],
        ["/meta/disconnect", undefined, "c"],
    ]);
});

test("without acknowledgements it says why, and does nothing", async () => {
    const page = await open({
        granted: {session: {update: false}},
        extensions: (update) => [["update", update]],
    });
    assert.match(page.logged[0][0], /AckExtension is not registered/);
    let heard = 0;
    page.cometd.subscribe("/a", () => {
        heard += 1;
        throw new Error("no");
    });
    assert.deepEqual(await deliver(page, delivery("1"), delivery("1")), []);
    assert.equal(heard, 2);
    page.update.working(delivery("1"));
    assert.equal(page.update.isGranted, false);
});

test("a server without it is named", async () => {
    const page = await open({granted: {ack: true, session: {update: false}}});
    assert.match(page.logged[0][0], /does not have `update`/);
});

test("messages of other sessions' kinds pass: no id, no data", async () => {
    const page = await open();
    const heard = [];
    page.cometd.subscribe("/a", ({data}) => heard.push(data));
    page.cometd.addListener("/meta/publish", () => heard.push("answer"));
    page.cometd.publish("/a", 1);
    (await page.wire.next("/a")).reply({ext: {update: {id: "9"}}});
    assert.deepEqual(await deliver(page, {channel: "/a", data: 1}, {channel: "/a", data: 2, ext: {update: {}}}), []);
    assert.deepEqual(heard, ["answer", 1, 2]);
});

test("taken out, it leaves the client as it was", async () => {
    const handler = () => {};
    const page = await open({before: (cometd) => (cometd.onListenerException = handler)});
    page.cometd.subscribe("/a", () => Promise.reject(new Error("no")).catch(() => {}));
    page.cometd.unregisterExtension("update");
    assert.equal(page.cometd.onListenerException, handler);
    assert.equal(Object.hasOwn(page.cometd, "subscribe"), false);
    assert.deepEqual(await deliver(page, delivery("1")), []);
});

const unclaimed = (...ids) => ids.map((id) => ({id, state: "UNCLAIMED"}));
const working = (...ids) => ids.map((id) => ({id, state: "WORKING"}));
const UNCLAIMED_LIMIT_MS = 30;

/** What is told from now on beside the connect, as it comes: all of it, once there are so many. */
async function tells(page, count) {
    const told = [];
    while (told.length < count) {
        const request = await page.told();
        told.push(...request.message.data);
        request.reply();
    }
    return told;
}

test("a message without a listener stays open and goes to the listener that is added late", async () => {
    const page = await open();
    assert.deepEqual(await deliver(page, delivery("1", 1), delivery("2", 2)), unclaimed("1", "2"));
    assert.equal(page.update.unclaimed, 2);
    const heard = [];
    const handle = page.cometd.subscribe("/a", ({data}) => heard.push([data, handle.channel]));
    assert.deepEqual(await tells(page, 2), [ok("1"), ok("2")]);
    assert.deepEqual(heard, [[1, "/a"], [2, "/a"]]);
    assert.equal(page.update.unclaimed, 0);
});

test("a late listener for what is addressed, and a wildcard, take what they match, and the rest waits", async () => {
    const page = await open();
    const addressed = {...delivery("1", 1, {subscription: "__subId:PtP"}), channel: "/service/box"};
    await deliver(page, addressed, {...delivery("2", 2), channel: "/b/c/d"}, delivery("3", 3));
    page.cometd.addListener("/b/*", () => assert.fail("it is one level too deep"));
    page.cometd.addListener("/b/**", () => new Promise(() => {}));
    page.cometd.addListener("/service/*", () => {});
    assert.deepEqual(await tells(page, 2), [ok("1"), ...working("2")]);
    assert.equal(page.update.unclaimed, 1);
});

test("what a late listener throws is told and shown as ever", async () => {
    const page = await open();
    const shown = [];
    page.cometd.onListenerException = (reason, handle, isListener, message) => shown.push([reason.message, message.data]);
    await deliver(page, delivery("1", 1));
    page.cometd.subscribe("/a", () => {
        throw Object.assign(new Error("no"), {errorCode: "user.update.error"});
    });
    assert.deepEqual(await tells(page, 1), [{id: "1", errorCode: "user.update.error", message: "no"}]);
    assert.deepEqual(shown, [["no", 1]]);
});

test("several late listeners share a message, and older ones come before newer ones", async () => {
    const page = await open();
    await deliver(page, delivery("1", 1));
    const heard = [];
    page.cometd.addListener("/other", () => {
        page.cometd.subscribe("/a", ({data}) => heard.push(`first ${data}`));
        page.cometd.subscribe("/a", ({data}) => heard.push(`second ${data}`));
    });
    await deliver(page, {...delivery("2", 2), channel: "/other"}, delivery("3", 3));
    assert.deepEqual(heard, ["first 1", "second 1", "first 3", "second 3"]);
});

test("a copy of a message without a listener takes its place", async () => {
    const page = await open();
    await deliver(page, delivery("1", 1));
    await deliver(page, delivery("1", 1, {redeliver: 1}));
    const heard = [];
    page.cometd.subscribe("/a", ({ext}) => heard.push(ext.update.redeliver));
    assert.deepEqual(await tells(page, 1), [ok("1")]);
    assert.deepEqual(heard, [1]);
});

test("after the time that the page gives it a message without a listener is a dead letter", async () => {
    const page = await open({options: {unclaimedMs: UNCLAIMED_LIMIT_MS}});
    assert.deepEqual(await deliver(page, delivery("1")), unclaimed("1"));
    const dead = {errorCode: "user.update.deadMessage", message: "no listener took it within 30 ms"};
    assert.deepEqual(await tells(page, 1), [{id: "1", ...dead}]);
    assert.equal(page.update.unclaimed, 0);
    const hasty = await open({options: {unclaimedMs: 0}});
    assert.equal((await deliver(hasty, delivery("1")))[0].errorCode, dead.errorCode);
    for (const unclaimedMs of [-2, 2 ** 31]) { // a browser ends a longer timer at once
        assert.throws(() => new UpdateExtension({}, {unclaimedMs}), {name: "RangeError", message: /unclaimedMs is a number of milliseconds/});
    }
});

test("notices, late answers and what was unsubscribed wait for nobody", async () => {
    const page = await open();
    page.cometd.unsubscribe(page.cometd.subscribe("/b/*", () => {}));
    const messages = [
        delivery("1", null, {state: "ERASED"}),
        {...delivery("2"), channel: "/ret/x/4000001"},
        {...delivery("3"), channel: "/b/c"},
    ];
    assert.deepEqual(await deliver(page, ...messages), ["1", "2", "3"].map(ok));
    assert.equal(page.update.unclaimed, 0);
});

test("in a session of another page a wildcard that was unsubscribed says nothing of names", async () => {
    const page = await open({granted: {ack: true, session: {update: true, reconnected: true}}});
    page.cometd.unsubscribe(page.cometd.subscribe("/b/*", () => {}));
    assert.deepEqual(await deliver(page, {...delivery("1"), channel: "/b/c"}), unclaimed("1"));
});

test("that a message without a listener has ended meanwhile is no news for the page", async () => {
    const rejected = [];
    const page = await open({options: {onRejected: (status) => rejected.push(status.id)}});
    const [status] = await deliver(page, delivery("1"));
    const reasons = [status, ok("2")].map((each) => ({...each, reason: "not open"}));
    page.connect.reply({ext: {ack: 3, update: {rejected: reasons}}});
    page.connect = await page.hold();
    page.cometd.subscribe("/a", () => {});
    assert.deepEqual(await tells(page, 1), [ok("1")]);
    assert.deepEqual(rejected, ["2"]);
});

test("a new session has none of the messages that waited for a listener in the one before", async () => {
    const page = await open();
    await deliver(page, delivery("1"));
    page.connect.reply({successful: false, error: "402::unknown", advice: {reconnect: "handshake", interval: 0}});
    const shake = await page.wire.next("/meta/handshake");
    assert.equal(page.update.unclaimed, 1);
    shake.reply({clientId: "d", version: "1.0", supportedConnectionTypes: ["wire"], ext: GRANTED});
    (await page.hold()).reply({ext: {ack: 1}});
    await page.hold();
    assert.equal(page.update.unclaimed, 0);
});

test("a listener that is added while a handshake is on its way reports how it fared", async () => {
    const page = await open();
    const slow = later();
    await deliver(page, delivery("1", 1), delivery("2", 2), delivery("3", 3));
    page.connect.reply({successful: false, error: "402::unknown", advice: {reconnect: "handshake", interval: 0}});
    const shake = await page.wire.next("/meta/handshake");
    page.cometd.addListener("/a", ({data}) => {
        if (data === 1) {
            throw Object.assign(new Error("no"), {errorCode: "user.update.error"});
        }
        return data === 2 ? slow.promise : undefined;
    });
    await Promise.resolve();
    const ext = {ack: true, session: {update: true, reconnected: true}};
    shake.reply({clientId: "d", version: "1.0", supportedConnectionTypes: ["wire"], ext});
    const first = await page.hold();
    const told = first.message.ext.update;
    first.reply({ext: {ack: 1}});
    await page.hold();
    assert.deepEqual(told, [{id: "1", errorCode: "user.update.error", message: "no"}, ...working("2"), ok("3")]);
    slow.reject({errorCode: "user.update.error", message: "later"});
    assert.deepEqual((await page.told()).message.data, [{id: "2", errorCode: "user.update.error", message: "later"}]);
});

/** The notice that the server has ended a subscription. */
const ended = (id) => ({
    channel: "/meta/subscribe",
    successful: false,
    subscription: "/a",
    error: "429:/a:resource.exhaust",
    ext: {subscribe: {errorCode: "resource.exhaust", message: "too expensive"}, update: {id, state: "FAILED"}},
});

test("the notice of an ended subscription is reported once, after earlier messages, and acknowledged", async () => {
    const heard = [];
    const page = await open({options: {onEnded: (told) => heard.push(told)}});
    page.cometd.addListener("/meta/unsuccessful", ({subscription}) => heard.push(subscription));
    page.cometd.subscribe("/a", ({data}) => heard.push(data));
    assert.deepEqual(await deliver(page, delivery("1", 1), ended("2")), [ok("1"), ok("2")]);
    const told = {subscription: "/a", errorCode: "resource.exhaust", message: "too expensive"};
    assert.deepEqual(heard.splice(0), [1, "/a", told]);
    assert.deepEqual(await deliver(page, ended("2"), delivery("3", 3)), [ok("2"), ...unclaimed("3")]);
    assert.deepEqual(heard, []);
});

test("functions of the page that throw stop nothing, and are named in the console", async (context) => {
    const {mock: errors} = context.mock.method(console, "error", () => {});
    const rejected = [];
    const fail = () => {
        throw new Error("wrong");
    };
    const onRejected = ({id}) => {
        rejected.push(id);
        fail();
    };
    const page = await open({options: {onRejected, onEnded: fail}});
    const reasons = [ok("1"), ok("2")].map((status) => ({...status, reason: "not open"}));
    page.connect.reply({ext: {ack: 2, update: {rejected: reasons}}});
    page.connect = await page.hold();
    assert.deepEqual(rejected, ["1", "2"]);
    assert.deepEqual(await deliver(page, ended("3")), [ok("3")]);
    const named = errors.calls.map(({arguments: [text]}) => text).filter((text) => text.startsWith("crewel: "));
    assert.deepEqual(named, ["crewel: onRejected failed", "crewel: onRejected failed", "crewel: onEnded failed"]);
});

test("the listeners of a subscription that the server has ended go, with names too", async () => {
    const extensions = (update) => [
        ["ack", new AckExtension()], ["session", new SessionExtension({name: "joe/1"})], ["update", update],
    ];
    const page = await open({extensions});
    page.cometd.subscribe("/a", () => assert.fail("it has ended"));
    assert.deepEqual(await deliver(page, ended("1"), delivery("2", 2)), [ok("1"), ...unclaimed("2")]);
});

test("statuses take at most half of what the server takes", async () => {
    const page = await open({granted: {ack: true, session: {update: true, maxMessageBytes: 400}}});
    page.cometd.addListener("/a", () => {});
    const told = await deliver(page, ...Array.from({length: 20}, (_, number) => delivery(`a-long-id-of-a-message-${number}`)));
    assert.ok(told.length > 1 && JSON.stringify(told).length <= 200, JSON.stringify(told));
});

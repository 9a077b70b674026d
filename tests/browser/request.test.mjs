/** Requests and answers of a page, with a client that a test plays: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {AnswerTimeoutError, createResponse, ErrorAnswer, replyChannel, RequestError, RequestExtension, Serials}
    from "../../extensions/request.js";
import {BinaryExtension} from "../../static/vendor/cometd/BinaryExtension.js";

const HANDSHAKE = "/meta/handshake";
const ID = "a".repeat(32);
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** What the official client is, as far as it is used; `sent` is what it was asked to send. */
class Client {
    sent = [];
    timers = new Map();
    warnings = [];
    listeners = {};

    setTimeout(call, delay) {
        const id = Symbol(delay);
        this.timers.set(id, {call, delay});
        return id;
    }

    clearTimeout(id) {
        this.timers.delete(id);
    }

    /** Lets the time come of what waits for so long. */
    elapse(delay) {
        for (const [id, timer] of [...this.timers]) {
            if (timer.delay === delay) {
                this.timers.delete(id);
                timer.call();
            }
        }
    }

    subscribe(channel, listener, props, callback) {
        this.listeners[channel] = listener;
        this.sent.push({channel: "/meta/subscribe", subscription: channel, answer: [callback, props].find((each) => typeof each === "function")});
        return channel;
    }

    publish(channel, data, props, callback) {
        this.sent.push({channel, data, ...props, answer: callback});
    }

    _warn(...words) {
        this.warnings.push(words);
    }
}

/** A page whose handshake was answered so. */
function page(session = {replyId: ID}, options) {
    const client = new Client();
    const extension = new RequestExtension(options);
    extension.registered("request", client);
    shake(extension, session);
    return {client, extension};
}

function shake(extension, session) {
    extension.outgoing({channel: HANDSHAKE});
    extension.incoming({channel: HANDSHAKE, successful: true, ext: {session}});
}

/** Asks, with the subscription confirmed; the promise, and the message that was sent. */
async function ask({client, extension}, channel = "/power", data = undefined, options = {}) {
    const asking = extension.request(channel, data, options);
    asking.catch(() => {});
    await turn();
    const last = client.sent.at(-1);
    if (last?.channel === "/meta/subscribe") {
        last.answer({successful: true});
        await turn();
    }
    return [asking, client.sent.at(-1)];
}

const replyTo = (message) => message.ext.publish.replyTo;
const deliver = ({client}, channel, fields = {data: 1}) => client.listeners[`/ret/${ID}/*`]({channel, ...fields});

test("a handshake asks for the ID beside what others ask for", () => {
    const extension = new RequestExtension();
    assert.deepEqual(extension.outgoing({channel: HANDSHAKE}).ext, {session: {}});
    const message = {channel: HANDSHAKE, ext: {ack: true, session: {name: "joe"}}};
    assert.deepEqual(extension.outgoing(message).ext, {ack: true, session: {name: "joe"}});
    assert.deepEqual(extension.outgoing({channel: "/a"}), {channel: "/a"});
});

test("the first request waits for the subscription, and there is one", async () => {
    const here = page();
    const asking = [here.extension.request("/power", 1), here.extension.request("/power", 2)];
    await turn();
    assert.deepEqual(here.client.sent.map((message) => message.subscription), [`/ret/${ID}/*`]);
    here.client.sent[0].answer({successful: true});
    await turn();
    const [first, second] = here.client.sent.slice(1);
    assert.match(replyTo(first), new RegExp(`^/ret/${ID}/4[0-9]{6}$`));
    deliver(here, replyTo(second), {data: "second"});
    deliver(here, replyTo(first), {data: "first"});
    assert.deepEqual((await Promise.all(asking)).map((answer) => answer.data), ["first", "second"]);
    assert.equal(here.client.timers.size, 0);
});

test("serial numbers are in turn, wrap, and none is given that waits", () => {
    const used = new Set(["/ret/a/4999999", "/ret/a/4000001"]);
    const serials = new Serials(999998);
    const taken = [1, 2, 3].map(() => serials.take("/ret/a/", used));
    assert.deepEqual(taken, ["/ret/a/4999998", "/ret/a/4000000", "/ret/a/4000002"]);
    assert.throws(() => serials.take("/ret/a/", {has: () => true}), RequestError);
    assert.match(new Serials().take("/ret/a/", new Set()), /^\/ret\/a\/4[0-9]{6}$/);
});

test("a request that gets no answer in time says so, and what comes then is late", async () => {
    const here = page();
    const [asking, message] = await ask(here, "/power", 1, {timeout: 50});
    here.client.elapse(50);
    await assert.rejects(asking, (error) => error instanceof AnswerTimeoutError && /\/power: no answer within 50 ms/.test(error));
    deliver(here, replyTo(message));
    assert.deepEqual([here.extension.late, here.extension.duplicates, here.extension.pending], [1, 0, 0]);
});

test("what JSON cannot say is refused with its place", async () => {
    const here = page();
    const faults = [
        [{price: [1, NaN]}, "data.price[1] is NaN"],
        [-Infinity, "data is -Infinity"],
        [{raw: new Uint8Array(3)}, "data.raw is 3 bytes"],
        [[1n], "data[0] is a BigInt"],
        [{emoji: ["\ud83d\ude00", "\ud83d"]}, "data.emoji[1] is text that is not valid Unicode"],
    ];
    for (const [data, fault] of faults) {
        const refused = (error) => error instanceof TypeError && error.message === `${fault}, which JSON cannot represent`;
        await assert.rejects(here.extension.request("/power", data), refused);
    }
    assert.equal(here.extension.pending, 0);
});

test("a second answer is counted and dropped", async () => {
    const here = page();
    const [asking, message] = await ask(here);
    deliver(here, replyTo(message), {data: "first"});
    deliver(here, replyTo(message), {data: "second"});
    assert.equal((await asking).data, "first");
    assert.deepEqual([here.extension.late, here.extension.duplicates], [0, 1]);
});

test("an answer may tell of a failure", async () => {
    for (const [error, code, text] of [
        [{errorCode: "user.a", message: "why"}, "user.a", "why"],
        [{}, "internal.unknown", ""],
        ["why", "internal.unknown", "why"],
    ]) {
        const here = page();
        const [asking, message] = await ask(here);
        deliver(here, replyTo(message), {data: [1], ext: {error}});
        await assert.rejects(asking, (raised) => {
            assert.ok(raised instanceof ErrorAnswer);
            assert.deepEqual([raised.errorCode, raised.message, raised.data], [code, text, [1]]);
            return true;
        });
    }
});

test("what is refused is told with the reply", async () => {
    const here = page();
    const [asking, message] = await ask(here);
    message.answer({successful: false, error: "403:no:publish_denied"});
    await assert.rejects(asking, (error) => error instanceof RequestError && error.reply.error === "403:no:publish_denied");
    assert.equal(here.extension.pending, 0);
});

test("a subscription that is refused is tried again with the next request", async () => {
    const here = page();
    const asking = here.extension.request("/power", 1);
    asking.catch(() => {});
    await turn();
    here.client.sent[0].answer({successful: false, error: "403::subscribe_denied"});
    await assert.rejects(asking, /answers cannot be received: 403::subscribe_denied/);
    const [again, message] = await ask(here);
    deliver(here, replyTo(message));
    assert.equal((await again).data, 1);
});

test("what is refused for its session is asked in the next one", async () => {
    for (const error of ["402::session_unknown", "403:token_expired:publish_denied"]) {
        for (const isOfSubscription of [true, false]) {
            const here = page();
            const asking = here.extension.request("/power", 1);
            await turn();
            if (!isOfSubscription) {
                here.client.sent.at(-1).answer({successful: true});
                await turn();
            }
            here.client.sent.at(-1).answer({successful: false, error});
            await turn();
            const count = here.client.sent.length;
            shake(here.extension, {replyId: ID});
            await turn();
            assert.equal(here.client.sent[count].subscription, `/ret/${ID}/*`);
            here.client.sent[count].answer({successful: true});
            await turn();
            deliver(here, replyTo(here.client.sent.at(-1)));
            assert.equal((await asking).data, 1);
        }
    }
});

test("an extension that is not registered says what to do", async () => {
    const extension = new RequestExtension();
    await assert.rejects(extension.request("/power", 1), /RequestError: .*call cometd.registerExtension/);
    assert.throws(() => extension.reply("/power", () => 1), /RequestError: .*call cometd.registerExtension/);
});

test("a request waits for a session, and not for longer than it may", async () => {
    const client = new Client();
    const extension = new RequestExtension({timeout: 70});
    extension.registered("request", client);
    const [early, later] = [extension.request("/power", 1, {timeout: 50}), extension.request("/power", 2)];
    await turn();
    client.elapse(50);
    await assert.rejects(early, /AnswerTimeoutError: .*within 50 ms: there was no handshake after this extension was registered/);
    shake(extension, {replyId: ID});
    await turn();
    client.sent[0].answer({successful: true});
    await turn();
    assert.deepEqual(client.sent.slice(1).map((message) => message.data), [2]);
    client.elapse(70);
    await assert.rejects(later, AnswerTimeoutError);
});

test("a new session with another ID loses what waits, and one with the same keeps it", async () => {
    const here = page();
    const [asking, message] = await ask(here);
    shake(here.extension, {replyId: ID});
    deliver(here, replyTo(message), {data: "kept"});
    assert.equal((await asking).data, "kept");
    const [lost] = await ask(here);
    shake(here.extension, {replyId: "b".repeat(32)});
    await assert.rejects(lost, /\/power: the session was lost/);
    const [, next] = await ask(here);
    assert.match(replyTo(next), /^\/ret\/b{32}\/4/);
    assert.equal(here.client.sent.filter((each) => each.channel === "/meta/subscribe").length, 3);
});

test("a subscription of a session that is gone is of no account", async () => {
    const here = page();
    const asking = here.extension.request("/power", 1);
    await turn();
    shake(here.extension, {replyId: "b".repeat(32)});
    here.client.sent[0].answer({successful: false, error: "402::session_unknown"});
    await turn();
    assert.equal(here.client.sent[1].subscription, `/ret/${"b".repeat(32)}/*`);
    here.client.sent[1].answer({successful: true});
    await turn();
    const sent = here.client.sent[2];
    here.client.listeners[`/ret/${"b".repeat(32)}/*`]({channel: replyTo(sent), data: "there"});
    assert.equal((await asking).data, "there");
});

test("a goodbye, and taking the extension out, end what waits", async () => {
    for (const end of [
        (extension) => extension.incoming({channel: "/meta/disconnect", successful: true}),
        (extension) => extension.unregistered(),
    ]) {
        const here = page();
        const [asking] = await ask(here);
        end(here.extension);
        await assert.rejects(asking, RequestError);
    }
});

test("where the server gives no ID the page makes one, and names the channel itself", async () => {
    const here = page({});
    const [, message] = await ask(here, "/power", undefined, {ext: {mine: 1}});
    assert.match(message.ext.replyTo, /^\/ret\/[0-9a-f]{32}\/4[0-9]{6}$/);
    assert.deepEqual({...message.ext, replyTo: ""}, {mine: 1, replyTo: ""});
    assert.equal(message.data, null);
});

test("what is asked is what it was when it was asked, and stays as it is", async () => {
    const here = page();
    const data = {n: [1]};
    const ext = {publish: {priority: 9}};
    const asking = here.extension.request("/power", data, {ext});
    asking.catch(() => {});
    data.n.push(2);
    await turn();
    here.client.sent[0].answer({successful: true});
    await turn();
    const message = here.client.sent[1];
    assert.deepEqual([message.data, message.ext.publish.priority], [{n: [1]}, 9]);
    assert.deepEqual(ext, {publish: {priority: 9}});
});

const asked = (fields = {}) => ({channel: "/power", data: {n: 1}, ext: {replyTo: `/ret/${ID}/3000001`, ...fields}});

test("only a complete reply channel makes a request", () => {
    assert.equal(replyChannel(asked()), `/ret/${ID}/3000001`);
    assert.equal(replyChannel({ext: {update: {replyTo: "/ret/a/4000000"}}}), "/ret/a/4000000");
    for (const name of ["/a", "/ret/a/*", "/ret/a", "/service/x", 5, null, "/ret/a/300000", "/ret/a/0000001"]) {
        assert.equal(replyChannel({ext: {replyTo: name}}), null);
    }
    assert.equal(replyChannel({}), null);
});

test("createResponse takes data, or the request's own", () => {
    assert.deepEqual(createResponse(asked(), 5), {channel: `/ret/${ID}/3000001`, data: 5, ext: {}});
    const request = asked({update: {clientProperties: {unit: "W"}}});
    const response = createResponse(request);
    assert.deepEqual(response.data, {n: 1});
    assert.notEqual(response.data, request.data);
    assert.deepEqual(response.ext, {publish: {clientProperties: {unit: "W"}}});
    assert.throws(() => createResponse({channel: "/power", data: 1}), TypeError);
});

test("createResponse without data returns bytes as they came", () => {
    const data = {data: "0ri", last: true, meta: {contentType: "image/png"}};
    const request = asked({binary: {}, update: {clientProperties: {unit: "W"}}});
    request.data = structuredClone(data);
    const response = createResponse(request);
    assert.deepEqual(response.data, data);
    assert.deepEqual(response.ext, {binary: {}, publish: {clientProperties: {unit: "W"}}});
    const extension = new BinaryExtension();
    const decoded = createResponse(extension.incoming(request));
    assert.notEqual(decoded.data.data, request.data.data);
    assert.deepEqual(new Uint8Array(decoded.data.data), new Uint8Array(request.data.data));
    assert.deepEqual(extension.outgoing(decoded).data, data);
});

/** Lets a page answer this message; what its listener returned, and what was published. */
async function answer(respond, message = asked(), ...replies) {
    const here = page();
    here.extension.reply("/power", respond);
    const done = here.client.listeners["/power"](message);
    for (const reply of [...replies, {successful: true}]) {
        await turn();
        here.client.sent.at(-1).answer?.(reply);
        await turn();
        here.client.elapse(1000);
    }
    await turn();
    const published = here.client.sent.filter((each) => each.channel.startsWith("/ret/"));
    return {...here, done, published: published.map(({channel, data, ext}) => ({channel, data, ext}))};
}

test("what a function returns, or its promise, is the answer", async () => {
    for (const respond of [(message) => message.data, async (message) => message.data]) {
        const {done, published} = await answer(respond);
        await done;
        assert.deepEqual(published, [{channel: `/ret/${ID}/3000001`, data: {n: 1}, ext: {}}]);
    }
    assert.equal((await answer(() => undefined)).published[0].data, null);
});

test("what is no request is not answered", async () => {
    const {done, published} = await answer(() => assert.fail(), {channel: "/power", data: 1});
    assert.equal(done, undefined);
    assert.deepEqual(published, []);
});

test("what a function throws is an answer, and only a code lets its words be told", async () => {
    const told = await answer(() => {
        throw new ErrorAnswer("user.a", "why", [1]);
    });
    assert.deepEqual([told.published[0].data, told.published[0].ext], [[1], {error: {errorCode: "user.a", message: "why"}}]);
    const untold = await answer(() => Promise.reject(new Error("secret")));
    assert.deepEqual(untold.published[0].ext, {error: {errorCode: "internal.unknown", message: "the responder failed"}});
    assert.equal(untold.client.warnings.length, 1);
});

test("an answer that may be lost is sent again, and one that is refused is not", async () => {
    const lost = await answer(() => 1, asked(), {successful: false, failure: {}}, {successful: false, error: "402::x"});
    await lost.done;
    assert.equal(lost.published.length, 3);
    const refused = await answer(() => 1, asked(), {successful: false, error: "403::x"});
    await assert.rejects(refused.done, RequestError);
    assert.equal(refused.published.length, 1);
});

test("an answer that the server does not take is reported as a failure of the responder", async () => {
    for (const reply of [{failure: {httpCode: 413}}, {failure: {httpCode: 400}}, {error: "400:data:user.illegalArgument"}]) {
        const times = reply.failure ? 3 : 1; // its request may have had other messages of the page
        const {done, published} = await answer(() => "x", asked(), ...Array(times).fill({successful: false, ...reply}));
        await done;
        const told = published.map(({data, ext}) => [data, ext.error?.errorCode]);
        assert.deepEqual(told, [...Array(times).fill(["x", undefined]), [null, "internal.unknown"]]);
    }
});

test("a time-out that is no number of milliseconds is refused", async () => {
    for (const timeout of ["5s", 0, NaN, null, 5n, Infinity, 2 ** 31]) {
        assert.throws(() => new RequestExtension({timeout}), {name: "TypeError", message: /timeout is a number/});
        await assert.rejects(new RequestExtension().request("/power", 7, {timeout}), /timeout is a number/);
    }
    assert.throws(() => new RequestExtension({timeout: NaN}), /not NaN/);
});

test("options that are no object are refused, such as a time-out alone", async () => {
    for (const options of [5000, "5s", null]) {
        assert.throws(() => new RequestExtension(options), {name: "TypeError", message: /options.*\{timeout: 5000\}/});
        await assert.rejects(page().extension.request("/power", 7, options), {name: "TypeError", message: /\{timeout: 5000\}/});
    }
});

test("a responder may return a response as it is created", async () => {
    const bytes = new ArrayBuffer(2);
    const message = asked({binary: {}});
    message.data = {data: bytes, last: true, meta: {contentType: "image/png"}};
    for (const respond of [(request) => createResponse(request), async (request) => createResponse(request)]) {
        const {published: [sent]} = await answer(respond, message);
        assert.deepEqual([sent.channel, sent.ext], [`/ret/${ID}/3000001`, {binary: {}}]);
        assert.equal(sent.data.data.byteLength, 2);
        assert.equal(sent.data.meta.contentType, "image/png");
    }
    const {published: [sent]} = await answer((request) => createResponse(request, 5));
    assert.deepEqual([sent.data, sent.ext], [5, {}]);
});

test("what only looks like a response is data", async () => {
    const data = {channel: "/a", data: 1, ext: {}};
    const {published: [sent]} = await answer(() => data);
    assert.deepEqual([sent.data, sent.ext], [data, {}]);
});

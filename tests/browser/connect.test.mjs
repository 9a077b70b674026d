/** What `connect()` decides without a browser: tokens, pauses, and which subscriptions are sent. Run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {mock, test} from "node:test";
import {connect} from "../../extensions/connect.js";
import {Attempts} from "../../extensions/connect-attempts.js";
import {completed, outboxOf} from "../../extensions/connect-options.js";
import {Subscriptions, fresh} from "../../extensions/connect-subscriptions.js";
import {Token, expiryOf} from "../../extensions/connect-token.js";
import {pause} from "../../extensions/pauses.js";
import {ReplyError, codeOf, isOfSession, isTemporary} from "../../extensions/replies.js";

const settled = () => new Promise((resolve) => setImmediate(resolve));

// Without a browser

test("without a browser, a connection does nothing and no promise must be handled", async () => {
    const connection = connect({url: "/cometd", name: "joe/1", token: () => assert.fail("asked")});
    connection.on("status", () => assert.fail("called"))();
    const promises = [connection.subscribe("/a", () => {}), connection.reply("/a", () => {}), connection.publish("/a", 1), connection.request("/a", 1)];
    await settled();
    for (const promise of promises) {
        await assert.rejects(promise, /there is no browser here/);
    }
    assert.equal(connection.status.state, "connecting");
    await connection.close();
});

test("wrong options are refused with the right ones", () => {
    assert.throws(() => connect(), /takes options with a url/);
    assert.throws(() => connect({name: "joe/1"}), /takes options with a url/);
    assert.throws(() => connect({url: "/cometd", name: 1}), /name is a string/);
    assert.throws(() => connect({url: "/cometd", token: {}}), /token is a string or a function/);
    assert.throws(() => connect({url: "/cometd", traces: true}), /traces is what @opentelemetry\/api exports/);
});

test("a publish or a request cannot wait for longer than a timer", async () => {
    globalThis.window = globalThis;
    try {
        const connection = connect({url: "http://nowhere/cometd"});
        const asked = [Infinity, 2 ** 31, NaN].flatMap((timeout) => [connection.publish("/a", 1, {timeout}), connection.request("/a", 1, {timeout})]);
        const refused = asked.map((promise) => assert.rejects(promise, {name: "RangeError", message: /timeout is at most 2147483647 milliseconds, not /}));
        await connection.close(); // before it has made an attempt
        await Promise.all(refused);
    } finally {
        delete globalThis.window;
    }
});

test("each user of a browser has an outbox, whichever session of theirs it is", () => {
    const nameOf = (options) => outboxOf(completed({url: "/cometd", ...options})).name;
    for (const name of ["ann", "ann/1", "ann/2", "client/ann", "client/ann/1", "ann/session/1", "/node/heron/client/ann/1"]) {
        assert.equal(nameOf({name}), "crewel.outbox ann", name);
    }
    assert.equal(nameOf({name: "client/1"}), "crewel.outbox 1");
    assert.equal(nameOf({name: "zoe/1", outbox: {onRefused: () => {}}}), "crewel.outbox zoe");
    assert.equal(nameOf({name: "zoe/1", outbox: {name: "orders"}}), "orders");
    assert.equal(nameOf({name: "zoe/1", outbox: {path: "orders.outbox"}}), undefined);
    assert.equal(nameOf({}), undefined);
});

// Pauses

test("pauses double up to the longest one, and are at least half of that", () => {
    const delays = {minDelay: 1000, maxDelay: 5000};
    assert.deepEqual([0, 1, 2, 3, 9].map((failures) => pause(failures, delays, 1)), [1000, 2000, 4000, 5000, 5000]);
    assert.deepEqual([0, 1, 2, 3, 9].map((failures) => pause(failures, delays, 0)), [500, 1000, 2000, 2500, 2500]);
});

test("a pause is not longer than a timer, which would end at once", () => {
    assert.equal(pause(0, {minDelay: Infinity, maxDelay: Infinity}, 1), 2 ** 31 - 1);
    assert.equal(pause(30, {minDelay: 1000, maxDelay: Infinity}, 1), 2 ** 31 - 1);
});

// Tokens

const jwt = (claims) => `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.x`;
const inMs = (ms) => jwt({exp: (Date.now() + ms) / 1000, sub: "ä?>"});

test("a token says when it expires, or not", () => {
    assert.equal(expiryOf(jwt({exp: 12, sub: "ä?>"})), 12000);
    for (const other of [jwt({}), jwt({exp: "12"}), "opaque", "a.b.c", undefined]) {
        assert.equal(expiryOf(other), null);
    }
});

test("a value is shown again and again", async () => {
    const token = new Token("t");
    await token.ready();
    assert.equal(token.show(), "t");
    token.refuse();
    await token.ready();
    assert.equal(token.show(), "t");
    assert.equal(new Token(undefined).show(), undefined);
});

test("a function is asked when its token is refused, expires or does not say when", async () => {
    const asked = [];
    for (const [given, times] of [[() => inMs(60000), 1], [() => inMs(500), 2], [async () => "opaque", 2]]) {
        const token = new Token(() => asked.push(given) && given());
        asked.length = 0;
        await token.ready();
        await token.ready();
        assert.equal(asked.length, times);
        token.show();
        token.refuse();
        await token.ready();
        assert.equal(asked.length, times + 1);
    }
});

test("a refusal of the token before does not count against the next one", async () => {
    let asked = 0;
    const token = new Token(() => jwt({exp: Date.now() / 1000 + 60, number: (asked += 1)}));
    await token.ready();
    token.show();
    token.refuse();
    await token.ready();
    token.refuse(); // a late answer to the one that was shown
    await token.ready();
    assert.equal(asked, 2);
});

test("what the function throws, or returns in place of a token, is an error", async () => {
    await assert.rejects(new Token(() => undefined).ready(), /token returns a string/);
    await assert.rejects(new Token(async () => { throw new Error("away"); }).ready(), /away/);
});

test("a token is asked for before it expires, and again after a failure, while the page is connected", async () => {
    mock.timers.enable({apis: ["setTimeout", "Date"], now: 1e12});
    try {
        let asked = 0;
        const token = new Token(() => {
            asked += 1;
            if (asked === 2) {
                throw new Error("away");
            }
            return inMs(100000);
        });
        const later = async (ms) => {
            mock.timers.tick(ms);
            for (let turn = 0; turn < 10; turn += 1) {
                await null;
            }
            return asked;
        };
        await token.ready();
        token.keepFresh();
        assert.equal(await later(74999), 1);
        assert.equal(await later(1), 2);
        assert.equal(await later(18749), 2);
        assert.equal(await later(1), 3);
        assert.equal(await later(75000), 4);
        token.rest();
        assert.equal(await later(99999), 4);
    } finally {
        mock.timers.reset();
    }
});

// Replies

test("a function that does not answer has failed after ten seconds, and its late answer is no token", async () => {
    mock.timers.enable({apis: ["setTimeout", "Date"], now: 1e12});
    try {
        const answers = [];
        const token = new Token(() => new Promise((resolve) => answers.push(resolve)));
        const failed = assert.rejects(token.ready(), /the function took longer than 10 s/);
        mock.timers.tick(9999);
        assert.equal(answers.length, 1);
        mock.timers.tick(1);
        await failed;
        const given = inMs(60000);
        const ready = token.ready();
        answers[0](inMs(50000));
        answers[1](given);
        await ready;
        assert.equal(token.show(), given);
    } finally {
        mock.timers.reset();
    }
});

// Attempts

/** Attempts with a client that only notes them. */
function attempts(token) {
    const listeners = {};
    const due = [];
    const proceeded = [];
    const states = [];
    const transport = {type: "websocket"};
    const cometd = {
        onTransportFailure: (message, failure, proceed) => proceed(failure),
        isDisconnected: () => false,
        addListener: (channel, listener) => Object.assign(listeners, {[channel]: listener}),
        handshake: () => {},
        setTimeout: (make, delay) => due.push({make, delay}),
        clearTimeout: () => {},
        getTransport: () => transport,
        getTransportTypes: () => ["websocket"],
        getTransportRegistry: () => ({reset: () => {}, findTransportTypes: () => ["websocket"]}),
        findTransport: () => transport,
    };
    const session = {refusal: null, isWaiting: false};
    const made = new Attempts(cometd, session, token, {minDelay: 1000, maxDelay: 5000}, ({state}) => states.push(state));
    const proceed = (failure) => failure.delay === 0 && proceeded.push(failure.action);
    const fail = (channel, cause, action, error = "") => cometd.onTransportFailure({channel, error}, {cause, action}, proceed);
    const succeed = () => listeners["/meta/connect"]({successful: true});
    const end = () => listeners["/meta/disconnect"]({successful: true});
    return {made, fail, due, proceeded, states, succeed, end};
}

test("a session that is lost in an outage is replaced as soon as the server answers; the next ones with pauses", () => {
    const {fail, due, states, succeed} = attempts(new Token(undefined));
    succeed();
    for (let times = 0; times < 5; times += 1) {
        fail("/meta/connect", "failure", "retry");
    }
    assert.ok(due.at(-1).delay >= 2500);
    fail("/meta/connect", "unsuccessful", "handshake", "401::token_expired");
    assert.equal(due.at(-1).delay, 0);
    fail("/meta/connect", "unsuccessful", "handshake", "402::session_unknown");
    assert.ok(due.at(-1).delay >= 2500);
    succeed();
    fail("/meta/connect", "unsuccessful", "handshake", "402::session_unknown");
    assert.equal(due.at(-1).delay, 0);
    assert.deepEqual(states, ["connected", "offline", "connecting", "connected", "connecting"]);
});

test("after the end of its session, a page makes no attempt that it has waited for", async () => {
    const {made, fail, due, proceeded, states, succeed, end} = attempts(new Token(undefined));
    succeed();
    fail("/meta/connect", "unsuccessful", "handshake", "402::session_unknown");
    fail("/meta/connect", "unsuccessful", "handshake", "402::session_unknown");
    end();
    due.at(-1).make(); // its timer
    await settled();
    assert.deepEqual(proceeded, []);
    assert.deepEqual(states, ["connected", "connecting", "refused"]);
    assert.deepEqual(made.status, {state: "refused", reason: {errorCode: "", message: "the session was ended"}, isFinal: true});
});

test("a page that was refused for good keeps the reason when its session ends", () => {
    const {made, fail, states, end} = attempts(new Token(undefined));
    fail("/meta/connect", "unsuccessful", "none", "402:client/joe/1:user.security.authentication.accessDenied.identicalClient");
    const {status} = made;
    end();
    assert.equal(made.status, status);
    assert.deepEqual(states, ["refused"]);
});

test("a page says that it has no token if the function does not answer, and asks again", async () => {
    mock.timers.enable({apis: ["setTimeout", "Date"], now: 1e12});
    try {
        const answers = [];
        const {made, due, states} = attempts(new Token(() => new Promise((resolve) => answers.push(resolve))));
        made.start(Promise.resolve());
        const turns = async (number = 30) => {
            for (let turn = 0; turn < number; turn += 1) {
                await null;
            }
        };
        await turns();
        assert.equal(answers.length, 1);
        mock.timers.tick(10000);
        await turns();
        assert.deepEqual(states, ["offline"]);
        assert.match(made.status.reason.message, /^no token: the function took longer than 10 s$/);
        due.at(-1).make();
        await turns();
        assert.equal(answers.length, 2);
    } finally {
        mock.timers.reset();
    }
});

test("a reply says whether something was refused for its session, which another session or token cures", () => {
    for (const error of ["402::session_unknown", "401::x", "403:token_expired:publish_denied", "403:token_expired:create_denied"]) {
        assert.ok(isOfSession({error}) && isTemporary({error}), error);
    }
    assert.ok(isOfSession({error: "403:client/joe/1:user.security.authentication.expired"}));
    for (const error of ["403:denied_by_security_policy:publish_denied", "403:/token_expired:create_denied", undefined]) {
        assert.ok(!isOfSession({error}), error);
    }
});

test("a reply says whether a repeat may succeed", () => {
    assert.ok(isTemporary({successful: false}));
    assert.ok(isTemporary({error: "402::unknown"}));
    assert.ok(isTemporary({error: "503::x", ext: {subscribe: {errorCode: "resource.unavailable"}}}));
    assert.ok(isTemporary({error: "503::resource.unavailable"}));
    assert.ok(!isTemporary({error: "429:limits.max_subscriptions:resource.exhaust"}));
    assert.ok(!isTemporary({error: "403::subscribe_denied"}));
});

test("a refusal has a code, also where that stands in the error alone", () => {
    assert.equal(codeOf({error: "403:denied_by_security_policy:channel_create_denied"}), "channel_create_denied");
    assert.equal(codeOf({error: "404:x:user.ptp.y", ext: {publish: {errorCode: "user.ptp.y", message: "no"}}}), "user.ptp.y");
    assert.equal(codeOf({failure: {}}), "");
});

test("an error says why the server refused, or that it is unknown whether it did", () => {
    const refused = new ReplyError("/a", {error: "403:/a:publish_denied"});
    assert.deepEqual([refused.message, refused.errorCode], ["/a: 403:/a:publish_denied", "publish_denied"]);
    const lost = new ReplyError("/a", {failure: {}});
    assert.deepEqual([lost.message, lost.errorCode], ["/a: the connection was lost, and it is unknown whether the server has it", ""]);
});

// Subscriptions

/** Subscriptions with a client that only notes what it sends. */
function world() {
    const sent = [];
    const ended = [];
    const handles = new Map();
    let id = 0;
    const cometd = {
        batch: (send) => send(),
        isDisconnected: () => false,
        removeListener: ({id}) => handles.delete(id),
        unsubscribe: (handle, answer) => {
            handles.delete(handle.id);
            sent.push(["unsubscribe", handle.channel, answer]);
        },
    };
    const subscriptions = new Subscriptions(cometd, (end) => ended.push(end));
    /** As the client does it: the first listener of a channel sends. */
    const start = (channel) => (props, answered) => {
        const handle = {id: (id += 1), channel};
        if (![...handles.values()].includes(channel)) {
            sent.push(["subscribe", channel, answered, props]);
        }
        handles.set(handle.id, channel);
        return handle;
    };
    const add = (channel, options) => {
        const listener = Symbol(channel);
        return {listener, promise: subscriptions.add(listener, channel, start(channel), options)};
    };
    const fail = (channel, reply) => {
        [...handles].filter(([, name]) => name === channel).forEach(([key]) => handles.delete(key));
        sent.at(-1)[2]({successful: false, ...reply});
    };
    const shake = () => {
        handles.clear();
        subscriptions.restore();
    };
    return {cometd, subscriptions, sent, ended, handles, add, fail, shake, log: () => sent.splice(0).map(([what, channel]) => `${what} ${channel}`)};
}

test("subscriptions are sent with each session, once for a channel", async () => {
    const {add, shake, sent, log} = world();
    const [first, second] = [add("/a", {filter: "x"}), add("/a", {filter: "x"})];
    shake();
    assert.deepEqual(sent[0][3], {ext: {subscribe: {filter: "x"}}});
    sent[0][2]({successful: true, id: "1"});
    assert.deepEqual(await Promise.all([first.promise, second.promise]), [{successful: true, id: "1"}, {successful: true, id: "1"}]);
    const third = add("/a", {filter: "x"});
    assert.equal((await third.promise).id, "1");
    assert.deepEqual(log(), ["subscribe /a"]);
    shake();
    assert.deepEqual(log(), ["subscribe /a"]);
    assert.throws(() => add("/a", {filter: "y"}), /with other options/);
});

test("a listener gets a message of a history once, also in another session", async () => {
    const got = [];
    const listener = fresh((message) => {
        got.push(message.data);
        if (message.data === "wrong" && got.length < 3) {
            throw new Error("too hot");
        }
        return message.data === "late" && got.length < 6 ? Promise.reject(new Error("too hot")) : undefined;
    });
    const message = (data, initial, id = data) => ({data, ext: {update: {id, initial}}});
    listener(message("one", true));
    await settled();
    listener(message("one", true));
    assert.throws(() => listener(message("wrong", true)), /too hot/);
    await settled();
    listener(message("wrong", true));
    listener(message("two", undefined));
    await assert.rejects(listener(message("late", true)), /too hot/);
    await settled();
    listener(message("late", true));
    listener(message("two", true));
    listener(message("one", undefined)); // sent again: not for this function to decide
    listener({data: "plain"});
    assert.deepEqual(got, ["one", "wrong", "wrong", "two", "late", "late", "one", "plain"]);
});

test("a subscription that was lost on its way is sent when the server is reached", async () => {
    const {subscriptions, add, shake, sent, fail, log} = world();
    const {promise} = add("/a");
    shake();
    fail("/a", {failure: {}});
    subscriptions.pause();
    subscriptions.resume();
    assert.deepEqual(sent.map(([what]) => what), ["subscribe", "subscribe"]);
    sent.at(-1)[2]({successful: true});
    await promise;
    subscriptions.resume();
    assert.equal(log().length, 2);
});

test("a refused subscription is not sent again; one that is refused later has ended", async () => {
    const {add, shake, sent, fail, ended} = world();
    const refused = add("/a");
    const granted = add("/b");
    refused.promise.catch(() => {});
    shake();
    sent[1][2]({successful: true});
    sent.pop();
    fail("/a", {error: "403:/a:subscribe_denied"});
    await assert.rejects(refused.promise, /subscribe_denied/);
    await granted.promise;
    assert.deepEqual(ended, []);
    sent.length = 0;
    shake();
    assert.deepEqual(sent.map(([, channel]) => channel), ["/b"]);
    fail("/b", {error: "403:/b:subscribe_denied"});
    assert.deepEqual(ended.map(({subscription, errorCode}) => [subscription, errorCode]), [["/b", "subscribe_denied"]]);
});

test("a channel that the client does not take rejects its own subscription alone", async () => {
    const {subscriptions, add, shake, log} = world();
    const start = () => {
        throw new Error("Illegal argument: invalid channel orders");
    };
    const wrong = () => assert.rejects(subscriptions.add(Symbol("orders"), "orders", start), /invalid channel orders/);
    const early = wrong();
    add("/a");
    shake();
    await early;
    assert.deepEqual(log(), ["subscribe /a"]);
    await wrong();
    shake();
    subscriptions.resume();
    assert.deepEqual(log(), ["subscribe /a"]);
});

test("fields that JSON cannot represent are refused, and later changes of them have no effect", () => {
    const {add, shake, sent} = world();
    assert.throws(() => add("/a", {since: 5n}), {name: "TypeError", message: "fields.since is a BigInt, which JSON cannot represent"});
    const fields = {filter: "x"};
    add("/b", fields);
    fields.filter = "y";
    shake();
    assert.deepEqual(sent.map(([, channel, , props]) => [channel, props]), [["/b", {ext: {subscribe: {filter: "x"}}}]]);
});

test("a client that the application has disconnected is asked for nothing, and for all of it in the next session", () => {
    const {cometd, subscriptions, add, shake, fail, log} = world();
    add("/a");
    shake();
    fail("/a", {failure: {}});
    cometd.isDisconnected = () => true;
    subscriptions.resume();
    assert.deepEqual(log(), ["subscribe /a"]);
    cometd.isDisconnected = () => false;
    shake();
    assert.deepEqual(log(), ["subscribe /a"]);
});

test("a subscription that is ended while the server is away is ended in the session that comes back", async () => {
    const {subscriptions, add, shake, sent, log} = world();
    const {listener, promise} = add("/a");
    shake();
    sent[0][2]({successful: true});
    await promise;
    subscriptions.pause();
    await subscriptions.remove(listener, "/a");
    assert.deepEqual(log(), ["subscribe /a"]);
    shake();
    assert.deepEqual(sent.map(([what, channel]) => `${what} ${channel}`), ["unsubscribe /a"]);
    sent[0][2]({successful: true});
    subscriptions.resume();
    assert.deepEqual(log(), ["unsubscribe /a"]);
});

test("a subscription that was never sent is not ended at the server", async () => {
    const {subscriptions, add, shake, log} = world();
    const {listener, promise} = add("/a");
    const rejected = assert.rejects(promise, /changed my mind/);
    await subscriptions.remove(listener, "/a", new Error("changed my mind"));
    await rejected;
    shake();
    assert.deepEqual(log(), []);
});

test("the server ends a subscription, and a closed connection all of them", async () => {
    const {subscriptions, add, shake, sent, ended, log} = world();
    const first = add("/a");
    const second = add("/b");
    shake();
    sent[0][2]({successful: true});
    await first.promise;
    subscriptions.end({subscription: "/a", errorCode: "resource.exhaust", message: "too expensive"});
    assert.deepEqual(ended, [{subscription: "/a", errorCode: "resource.exhaust", message: "too expensive"}]);
    const closed = assert.rejects(second.promise, /no connection: closed/);
    subscriptions.close({ext: {publish: {errorCode: "", message: "no connection: closed"}}});
    await closed;
    log();
    shake();
    assert.deepEqual(log(), []);
});

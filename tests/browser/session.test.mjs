/** Who a page is, and how it comes back: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {SessionExtension} from "../../extensions/session.js";

const HANDSHAKE = "/meta/handshake";

/** What sessionStorage is, as far as it is used. */
function storage(kept = {}) {
    return {
        kept,
        getItem: (key) => kept[key] ?? null,
        setItem: (key, value) => {
            kept[key] = value;
        },
        removeItem: (key) => {
            delete kept[key];
        },
    };
}

const outgoing = (extension, ext) => extension.outgoing({channel: HANDSHAKE, ...(ext ? {ext} : {})}).ext;

/** The ext of a handshake, less its nonce. */
function shake(extension, ext) {
    const {session, ...others} = outgoing(extension, ext);
    delete session.nonce;
    return {...others, session};
}

const grant = (extension, session) => extension.incoming({channel: HANDSHAKE, successful: true, ext: {session}});
const refuse = (extension, fields) => extension.incoming({channel: HANDSHAKE, successful: false, ...fields});

test("a handshake says who asks, beside what others put into ext", () => {
    const extension = new SessionExtension({name: "client/joe/1", token: "t"});
    assert.deepEqual(shake(extension, {ack: true}), {ack: true, session: {name: "client/joe/1", token: "t"}});
});

test("what is asked may be another thing each time", () => {
    let token = 0;
    const extension = new SessionExtension(() => ({token: `t${(token += 1)}`}));
    assert.deepEqual(shake(extension), {session: {token: "t1"}});
    assert.deepEqual(shake(extension), {session: {token: "t2"}});
});

test("each handshake has a nonce of its own", () => {
    const extension = new SessionExtension({name: "joe/1"});
    const nonces = [1, 2].map(() => outgoing(extension).session.nonce);
    nonces.forEach((nonce) => assert.match(nonce, /^[0-9a-f]{32}$/));
    assert.notEqual(nonces[0], nonces[1]);
});

test("a page learns that another one has taken its session over", () => {
    const seen = [];
    const extension = new SessionExtension({name: "joe/1"}, {changed: ({refusal}) => seen.push(refusal?.errorCode ?? null)});
    grant(extension, {name: "client/joe/1", resume: "r"});
    const error = "402:client/joe/1:user.configuration.identicalClient";
    extension.incoming({channel: "/meta/connect", successful: false, error, advice: {reconnect: "none"}});
    assert.deepEqual(seen, [null, "user.configuration.identicalClient"]);
    assert.equal(extension.name, null);
    extension.incoming({channel: "/meta/connect", successful: false, error: "402::session_unknown"});
    assert.equal(seen.length, 2);
});

test("a page that waits for its name asks the server not to take the session from another one", () => {
    const extension = new SessionExtension({name: "joe/1", token: "t"}, {waits: true});
    assert.deepEqual(shake(extension), {session: {name: "joe/1", token: "t", reconnectSameClientOnly: true}});
    extension.unregistered();
});

test("a page continues the session of the one that went before it, unless that may come back by a reload", (context) => {
    context.mock.timers.enable({apis: ["Date"], now: 1e12});
    globalThis.window = {localStorage: storage()};
    const {kept} = window.localStorage;
    const waits = () => new SessionExtension({name: "joe/1"}, {waits: true});
    const leave = (ago) => {
        kept["crewel.session joe/1"] = JSON.stringify({resume: "left", at: Date.now() - ago});
    };
    try {
        for (const [ago, resume] of [[999, undefined], [1000, "left"], [59999, "left"], [60000, undefined]]) {
            leave(ago);
            assert.equal(shake(waits()).session.resume, resume, String(ago));
            assert.equal(Object.keys(kept).length, ago < 1000 ? 1 : 0);
        }
        leave(2000);
        assert.equal(shake(new SessionExtension({name: "joe/1"})).session.resume, undefined); // it does not ask for it
        assert.equal(shake(new SessionExtension({name: "joe/2"}, {waits: true})).session.resume, undefined);
        const other = waits();
        grant(other, {name: "client/joe/1", resume: "own"});
        assert.equal(shake(other).session.resume, "own");
        assert.equal(Object.keys(kept).length, 1);
    } finally {
        delete globalThis.window;
    }
});

test("a function that returns a promise is named in the console", (context) => {
    const logged = context.mock.method(console, "error", () => {});
    outgoing(new SessionExtension(async () => ({name: "joe/1"})));
    assert.match(logged.mock.calls[0].arguments[0], /must return the fields, not a promise/);
});

test("functions that throw are named in the console, and the session continues", (context) => {
    const {mock: errors} = context.mock.method(console, "error", () => {});
    const fail = () => {
        throw new Error("wrong");
    };
    const extension = new SessionExtension(fail, {changed: fail});
    grant(extension, {name: "client/joe/1", resume: "r"});
    assert.equal(extension.name, "client/joe/1");
    assert.equal(shake(extension).session.resume, "r");
    const named = ["crewel: changed failed", "crewel: the function of a SessionExtension failed"];
    assert.deepEqual(errors.calls.map(({arguments: [text]}) => text), named);
});

test("other messages pass as they are", () => {
    const message = {channel: "/chat/demo", data: {}};
    const extension = new SessionExtension({name: "joe"});
    assert.deepEqual(extension.outgoing({...message}), message);
    assert.deepEqual(extension.incoming({...message}), message);
});

test("the secret of the last answer goes into the next handshake", () => {
    const extension = new SessionExtension({name: "joe"});
    grant(extension, {name: "/node/heron/client/joe/-1", resume: "one", reconnected: false});
    assert.equal(extension.name, "/node/heron/client/joe/-1");
    assert.equal(shake(extension).session.resume, "one");
    grant(extension, {name: "/node/heron/client/joe/-1", resume: "two", reconnected: true});
    assert.equal(extension.reply.reconnected, true);
    assert.equal(shake(extension).session.resume, "two");
});

test("a reloaded page goes on with what was kept", () => {
    const place = storage();
    grant(new SessionExtension({}, {storage: place}), {resume: "secret"});
    assert.deepEqual(place.kept, {"crewel.session": "secret"});
    assert.equal(shake(new SessionExtension({}, {storage: place})).session.resume, "secret");
    assert.equal(shake(new SessionExtension({}, {storage: place, key: "other"})).session.resume, undefined);
});

test("a subscribe that failed before the last handshake takes no listener away", () => {
    const extension = new SessionExtension({name: "joe"});
    const subscribe = (id) => extension.outgoing({channel: "/meta/subscribe", id, subscription: "/a"});
    const answer = (id, successful) => extension.incoming({channel: "/meta/subscribe", id, successful, subscription: "/a"});
    shake(extension);
    subscribe("2");
    subscribe("3");
    assert.equal(answer("2", false).subscription, "/a");
    shake(extension);
    subscribe("5");
    assert.deepEqual(answer("3", false), {channel: "/meta/subscribe", id: "3", successful: false, subscription: undefined});
    assert.equal(answer("5", true).subscription, "/a");
});

test("what a kept session has begun is not begun again", () => {
    const extension = new SessionExtension({name: "joe/1"}, {waits: true});
    let id = 0;
    const login = (reconnected) => {
        shake(extension);
        grant(extension, {name: "client/joe/1", resume: "r", reconnected});
    };
    const ask = (subscribe, subscription = "/a", successful = true) => {
        const message = extension.outgoing({channel: "/meta/subscribe", id: `${(id += 1)}`, subscription, ...(subscribe && {ext: {subscribe}})});
        extension.incoming({channel: "/meta/subscribe", id: message.id, subscription, successful});
        return message.ext?.subscribe;
    };
    const asked = {history: {numEntries: 10}, since: {"/a": {epoch: "e", id: "1"}}, filter: "x"};
    const continued = {filter: "x", initialUpdate: false};
    login(false);
    assert.deepEqual(ask(asked, "/a", false), asked);
    login(true);
    assert.deepEqual(ask(asked), asked); // the server has not confirmed it
    assert.equal(ask(undefined, "/b"), undefined);
    for (let times = 0; times < 2; times += 1) {
        login(true);
        assert.deepEqual(ask(asked), continued);
        assert.equal(ask(undefined, "/b"), undefined);
    }
    const losses = [
        () => login(false),
        () => extension.outgoing({channel: "/meta/unsubscribe", subscription: "/a"}),
        () => extension.incoming({channel: "/meta/subscribe", subscription: "/a", successful: false}),
        () => extension.incoming({channel: "/a", data: null, ext: {update: {id: "1", state: "ERASED"}}}),
        () => refuse(extension, {ext: {session: {errorCode: "user.configuration.identicalClient"}}}) && login(true),
    ];
    for (const lose of losses) {
        lose();
        assert.deepEqual(ask(asked), asked);
        assert.deepEqual(ask(asked), continued);
    }
});

test("after a goodbye there is nothing to go on with", () => {
    const place = storage();
    const extension = new SessionExtension({}, {storage: place});
    grant(extension, {resume: "secret"});
    extension.incoming({channel: "/meta/disconnect", successful: false});
    assert.equal(extension.resume, "secret");
    extension.incoming({channel: "/meta/disconnect", successful: true});
    assert.equal(extension.resume, null);
    assert.deepEqual(place.kept, {});
});

test("a refusal is told, and a secret that is worth nothing is forgotten", () => {
    const place = storage({"crewel.session": "old"});
    const seen = [];
    const extension = new SessionExtension({name: "joe/1"}, {storage: place, changed: (each) => seen.push(each.refusal)});
    refuse(extension, {error: "503::resource.unavailable", ext: {session: {errorCode: "resource.unavailable"}}});
    assert.equal(extension.resume, "old");
    const code = "user.configuration.identicalClient";
    refuse(extension, {error: `403:client/joe/1:${code}`, ext: {session: {errorCode: code, message: "taken"}}});
    assert.deepEqual(extension.refusal, {errorCode: code, message: "taken"});
    assert.equal(extension.resume, null);
    assert.deepEqual(place.kept, {});
    const early = {error: `403:client/joe/1:${code}`, ext: {session: {errorCode: code, retryAfter: 9000}}};
    assert.deepEqual(refuse(extension, early).advice, {reconnect: "handshake", interval: 9050});
    early.ext.session.retryAfter = 30 * 86_400_000; // longer than a timer, which would end at once
    assert.deepEqual(refuse(extension, early).advice, {reconnect: "handshake", interval: 1e9});
    refuse(extension, {error: "402::session_unknown"});
    assert.deepEqual(extension.refusal, {errorCode: "", message: "402::session_unknown"});
    grant(extension, {resume: "new"});
    assert.equal(extension.refusal, null);
    assert.equal(seen.length, 6);
});

test("a server that does not know of names does no harm", () => {
    const extension = new SessionExtension({name: "joe"});
    extension.incoming({channel: HANDSHAKE, successful: true});
    assert.equal(extension.reply, null);
    assert.equal(extension.name, null);
    assert.deepEqual(shake(extension), {session: {name: "joe"}});
});

test("a browser that forbids its storage keeps the secret as long as the page", () => {
    const fail = () => {
        throw new Error("forbidden");
    };
    const extension = new SessionExtension({}, {storage: {getItem: fail, setItem: fail, removeItem: fail}});
    grant(extension, {resume: "secret"});
    assert.equal(shake(extension).session.resume, "secret");
    extension.forget();
    assert.equal(shake(extension).session.resume, undefined);
});

test("what are no fields of a session is refused", () => {
    assert.throws(() => new SessionExtension("joe/1"), {name: "TypeError", message: /fields of the session.*"joe\/1"/});
    assert.throws(() => new SessionExtension(null), TypeError);
    assert.throws(() => new SessionExtension(["joe/1"]), /fields of the session/);
    assert.throws(() => new SessionExtension(5n), /fields of the session/);
});

/** What a page's presence decides without a browser: no change is missed, and each is told once. Run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {connect} from "../../extensions/connect.js";
import {Presence} from "../../extensions/presence.js";

const CHANGES = "/__sys__presence/room";

/** Lets what was begun end: timers without a delay, and the calls to the server that follow each other. */
async function settled() {
    for (let turn = 0; turn < 10; turn += 1) {
        await new Promise((resolve) => setTimeout(resolve, 0));
        await new Promise((resolve) => setImmediate(resolve));
    }
}

/** A connection whose server is `answer`; `confirm` confirms the subscription, in this session or the next. */
function served(answer) {
    const calls = [];
    const on = {status: [], ended: []};
    const connection = {
        status: {state: "connected"},
        change: (status) => on.status.forEach((listener) => listener(status)),
        calls,
        on: (event, listener) => on[event].push(listener) && (() => {}),
        subscribe: async (channel, listener, {signal}) => {
            assert.equal(channel, CHANGES);
            connection.hear = (data) => listener({data});
            connection.signal = signal;
        },
        cometd: {
            addListener: (_, listener) => {
                connection.confirm = () => listener({successful: true, subscription: CHANGES});
                return {};
            },
            removeListener: () => {},
            remoteCall: (target, {channel, action, data}, timeout, told) => {
                assert.deepEqual([target, channel], ["presence", "/room"]);
                calls.push(data === null ? action : `${action} ${JSON.stringify(data)}`);
                setImmediate(() => told(answer(action, data)));
            },
        },
    };
    return connection;
}

const member = (id, data = null, sessions = 1) => ({id, sessions, data});
const list = (seq, ...members) => ({successful: true, data: {epoch: "e", seq, members}});
const entered = {successful: true, data: {id: "joe"}};

function told(presence) {
    const seen = [];
    presence.on((changes) => seen.push(...changes.map(({change, member: {id}}) => `${change} ${id}`)));
    return seen;
}

test("it enters, lists, and applies the changes after the list", async () => {
    const connection = served((action) => (action === "members" ? list(3, member("joe", 1)) : entered));
    const presence = new Presence(connection, "/room", {data: 1});
    const seen = told(presence);
    await settled();
    assert.deepEqual(connection.calls, []);
    connection.confirm();
    await presence.ready;
    assert.deepEqual(connection.calls, ["enter 1", "members"]);
    assert.equal(presence.id, "joe");
    connection.hear({epoch: "e", seq: 3, changes: [{change: "leave", id: "joe"}]}); // the list has it
    connection.hear({epoch: "e", seq: 4, changes: [{change: "join", ...member("ann")}]});
    connection.hear({epoch: "e", seq: 5, changes: [{change: "update", ...member("ann", 2)}, {change: "leave", id: "joe"}]});
    assert.deepEqual(seen, ["join joe", "join ann", "update ann", "leave joe"]);
    assert.deepEqual(presence.members, [member("ann", 2)]);
});

test("after a gap, another epoch or a reset it lists again, and tells only what is another", async () => {
    let seq = 3;
    const connection = served((action) => (action === "members" ? list(seq, member("joe"), member("ann")) : entered));
    const presence = new Presence(connection, "/room", {enter: false});
    const seen = told(presence);
    connection.confirm();
    await presence.ready;
    seq = 9;
    connection.hear({epoch: "e", seq: 9, changes: []});
    await settled();
    connection.hear({epoch: "other", seq: 1, changes: []});
    await settled();
    connection.hear({channel: "/room", reset: true});
    await settled();
    assert.deepEqual(connection.calls, ["members", "members", "members", "members"]);
    assert.deepEqual(seen, ["join joe", "join ann"]);
    assert.equal(presence.id, null);
});

test("in a new session it enters again with what was set last", async () => {
    const connection = served((action) => (action === "members" ? list(1, member("joe")) : entered));
    const presence = new Presence(connection, "/room", {data: "a"});
    connection.confirm();
    await presence.ready;
    await presence.update("b");
    connection.confirm();
    await settled();
    assert.deepEqual(connection.calls, ['enter "a"', "members", 'enter "b"', 'enter "b"', "members"]);
});

test("changes that come while it lists are applied after the list", async () => {
    const connection = served(() => {
        connection.hear({epoch: "e", seq: 2, changes: [{change: "join", ...member("ann")}]});
        return list(1, member("joe"));
    });
    const presence = new Presence(connection, "/room", {enter: false});
    connection.confirm();
    await presence.ready;
    await settled();
    assert.deepEqual(presence.members.map(({id}) => id), ["joe", "ann"]);
});

test("a component that is mounted again at once does not leave", async () => {
    const connection = served((action) => (action === "members" ? list(1, member("joe")) : entered));
    const first = new Presence(connection, "/room", {data: 1});
    first.close();
    const second = new Presence(connection, "/room", {data: 1});
    connection.confirm();
    await second.ready;
    await settled();
    assert.deepEqual(connection.calls, ["enter 1", "members"]);
    second.close();
    await settled();
    assert.deepEqual(connection.calls.slice(2), ["leave"]);
    assert.ok(connection.signal.aborted);
});

test("two presences of a channel are one, and the page leaves with the last one that has entered", async () => {
    const connection = served((action) => (action === "members" ? list(1, member("joe")) : entered));
    const [first, second, watcher] = [new Presence(connection, "/room"), new Presence(connection, "/room"), new Presence(connection, "/room", {enter: false})];
    connection.confirm();
    await Promise.all([first.ready, second.ready, watcher.ready]);
    await first.leave();
    assert.equal(connection.calls.includes("leave"), false);
    second.close();
    await settled();
    assert.equal(connection.calls.at(-1), "leave");
    assert.equal(watcher.id, null);
    await assert.rejects(watcher.update(1), /not present/);
});

test("a refusal says why, and ends with the next session", async () => {
    let isGranted = false;
    const connection = served((action) => (isGranted ? list(1, member("joe")) : {successful: false, data: {errorCode: "user.x", message: "no " + action}}));
    const presence = new Presence(connection, "/room", {enter: false});
    connection.confirm();
    await assert.rejects(presence.ready, /\/room: no members/);
    assert.equal(presence.error.errorCode, "user.x");
    isGranted = true;
    connection.confirm();
    await settled();
    assert.equal(presence.error, null);
    assert.equal(presence.members.length, 1);
});

test("a call that the server itself refuses fails, and one beyond a rate is tried again", async () => {
    let error = "403:denied_by_security_policy:publish_denied";
    const connection = served(() => (error ? {successful: false, error} : list(1, member("joe"))));
    const presence = new Presence(connection, "/room", {enter: false});
    connection.confirm();
    await assert.rejects(presence.ready, {name: "PresenceError", errorCode: "publish_denied"});
    error = "429:limits.publishes_per_s:resource.temporary.unavailable";
    connection.confirm();
    await settled();
    error = "";
    const calls = connection.calls.length;
    while (presence.members.length === 0) {
        await settled();
    }
    assert.equal(connection.calls.length, calls + 1);
});

test("after the end of the connection, what is asked for is rejected with the reason", async () => {
    const connection = served((action) => (action === "members" ? list(1, member("joe")) : entered));
    const presence = new Presence(connection, "/room");
    connection.confirm();
    await presence.ready;
    connection.change({state: "refused", reason: {errorCode: "", message: "the session was ended"}, isFinal: true});
    const why = {name: "PresenceError", message: "/room: the session was ended", errorCode: ""};
    await assert.rejects(presence.enter(1), why);
    assert.equal(presence.error.message, why.message);
    assert.deepEqual(connection.calls, ["enter", "members"]);
});

test("a call without an answer is tried again", async () => {
    let failures = 1;
    const connection = served(() => (failures-- > 0 ? {successful: false, error: "406::timeout", failure: {}} : list(1, member("joe"))));
    const presence = new Presence(connection, "/room", {enter: false});
    connection.confirm();
    await presence.ready;
    assert.deepEqual(connection.calls, ["members", "members"]);
});

test("a listener that throws stops neither the presence nor other listeners", async (context) => {
    const {mock: errors} = context.mock.method(console, "error", () => {});
    const connection = served(() => list(1, member("joe")));
    const [first, second] = [1, 2].map(() => new Presence(connection, "/room", {enter: false}));
    context.after(() => [first, second].forEach((presence) => presence.close()));
    first.on(([{change}]) => change); // which an empty list does not have
    const seen = told(second);
    const ready = [];
    first.ready.then(() => ready.push("first"));
    second.ready.then(() => ready.push("second"));
    connection.confirm();
    await settled();
    assert.deepEqual(ready, ["first", "second"]);
    first.on(() => {
        throw new Error("wrong");
    });
    connection.hear({epoch: "e", seq: 2, changes: [{change: "join", ...member("ann")}]});
    assert.deepEqual(seen, ["join joe", "join ann"]);
    assert.deepEqual(connection.calls, ["members"]);
    assert.deepEqual(errors.calls.map(({arguments: [text]}) => text), Array(2).fill("crewel: a listener of the presence of /room failed"));
});

test("what is asked for after the presence was closed is rejected, and others of its channel are as they were", async () => {
    const connection = served((action) => (action === "members" ? list(1, member("joe")) : entered));
    const [closed, other] = [new Presence(connection, "/room"), new Presence(connection, "/room")];
    connection.confirm();
    await Promise.all([closed.ready, other.ready]);
    closed.close();
    const why = {name: "PresenceError", message: "/room: the presence was closed"};
    await Promise.all([closed.enter(1), closed.update(1), closed.leave()].map((asked) => assert.rejects(asked, why)));
    await other.leave();
    assert.deepEqual(connection.calls, ["enter", "members", "leave"]);
    other.close();
    await settled();
    await assert.rejects(other.enter(1), why);
});

test("without a browser, it lists nothing and throws nothing", async () => {
    const presence = connect({url: "/cometd"}).presence("/room", {data: 1});
    presence.on(() => {})();
    await settled();
    await assert.rejects(presence.update(2), /there is no browser here/);
    assert.deepEqual([...presence.members, presence.id], [null]);
    presence.close();
    assert.throws(() => connect({url: "/cometd"}).presence("room"), /name of a channel/);
});

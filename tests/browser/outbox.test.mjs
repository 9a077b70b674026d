/** What becomes of a line whose answer is late, lost or a refusal: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {mock, test} from "node:test";
import {Outbox} from "../../static/chat/outbox.js";

const ROOM = "/chat/demo";
const LOST = {successful: false, failure: {reason: "connection lost"}};
const AWAY = {
    successful: false,
    error: "503::resource.unavailable",
    ext: {publish: {errorCode: "resource.unavailable", message: "the store is unavailable"}},
};

/** An outbox with a client that only notes what is published: returns {outbox, sent, answer, refused, clock}. */
function outbox() {
    const sent = [];
    const refused = [];
    const clock = {now: 0};
    const cometd = {
        batch: (publish) => publish(),
        publish: (channel, data, properties, answered) => sent.push({channel, data, properties, answered}),
    };
    return {
        outbox: new Outbox(cometd, (...refusal) => refused.push(refusal), () => {}, () => clock.now),
        sent,
        refused,
        clock,
        /** Answers the publish that was sent as the nth. */
        answer: (at, reply) => sent[at].answered(reply),
        texts: () => sent.map(({data}) => data.chat),
    };
}

test("a line with a key is persistent, one without is as any publish", () => {
    const world = outbox();
    world.outbox.open();
    world.outbox.say(ROOM, {chat: "kept"}, "k1");
    world.outbox.say("/service/privatechat", {chat: "said"});
    assert.deepEqual(world.sent.map(({properties}) => properties), [{ext: {publish: {persistent: true, key: "k1"}}}, {}]);
});

test("what is said while the server cannot be reached waits, in its order", () => {
    const world = outbox();
    world.outbox.say(ROOM, {chat: "one"}, "k1");
    world.outbox.say(ROOM, {chat: "two"}, "k2");
    assert.equal(world.outbox.waiting, 2);
    assert.deepEqual(world.texts(), []);
    world.outbox.open();
    assert.equal(world.outbox.waiting, 0);
    assert.deepEqual(world.texts(), ["one", "two"]);
});

test("a line whose answer was lost is published again under its key, before what was said after it", () => {
    const world = outbox();
    world.outbox.open();
    world.outbox.say(ROOM, {chat: "one"}, "k1");
    world.outbox.close();
    world.outbox.say(ROOM, {chat: "two"}, "k2");
    world.answer(0, LOST);
    assert.equal(world.outbox.waiting, 2);
    world.outbox.open();
    assert.deepEqual(world.texts(), ["one", "one", "two"]);
    assert.equal(world.sent[1].properties.ext.publish.key, "k1");
    assert.deepEqual(world.refused, []);
});

test("a line that was not answered when the connection came back is published again, and one answer is enough", () => {
    const world = outbox();
    world.outbox.open();
    world.outbox.say(ROOM, {chat: "one"}, "k1");
    world.outbox.close();
    world.outbox.open();
    assert.deepEqual(world.texts(), ["one", "one"]);
    world.answer(0, {successful: true});
    world.answer(1, LOST);
    assert.equal(world.outbox.waiting, 0);
});

test("while the connection holds a lost answer is asked for again after a pause", () => {
    mock.timers.enable({apis: ["setTimeout"]});
    const world = outbox();
    world.outbox.open();
    world.outbox.say(ROOM, {chat: "one"}, "k1");
    world.answer(0, LOST);
    assert.deepEqual(world.texts(), ["one"]);
    mock.timers.tick(1000);
    assert.deepEqual(world.texts(), ["one", "one"]);
    mock.timers.reset();
});

test("a key that the server may have forgotten is not relied on", () => {
    const world = outbox();
    world.outbox.open();
    world.outbox.say(ROOM, {chat: "one"}, "k1");
    world.clock.now = 100_000;
    world.answer(0, LOST);
    assert.equal(world.outbox.waiting, 0);
    assert.deepEqual(world.refused, [
        [{chat: "one"}, "k1", "No reply came, so it is unknown whether the server accepted it"],
    ]);
});

test("a refused line comes back with its key and the reason", () => {
    const world = outbox();
    world.outbox.open();
    world.outbox.say(ROOM, {chat: "one"}, "k1");
    world.answer(0, AWAY);
    const reason = "Not accepted: the store is unavailable (503::resource.unavailable)";
    assert.deepEqual(world.refused, [[{chat: "one"}, "k1", reason]]);
    world.outbox.say(ROOM, {chat: "two"}, "k2");
    world.answer(1, {successful: false, error: "404::message_deleted"});
    assert.equal(world.refused[1][2], "Not accepted (404::message_deleted)");
});

test("a private line is not said twice: if its answer is lost, its author decides", () => {
    const world = outbox();
    world.outbox.open();
    world.outbox.say("/service/privatechat", {chat: "psst", peer: "sue"});
    world.answer(0, LOST);
    assert.equal(world.outbox.waiting, 0);
    assert.equal(world.refused.length, 1);
});

test("what a session said that the server did not know, or whose token had expired, waits for the new session", () => {
    for (const error of ["402::session_unknown", "403:token_expired:publish_denied"]) {
        const world = outbox();
        world.outbox.open();
        world.outbox.say("/service/privatechat", {chat: "psst", peer: "sue"});
        world.outbox.close();
        world.answer(0, {successful: false, error});
        assert.equal(world.outbox.waiting, 1);
        world.outbox.open();
        assert.deepEqual(world.texts(), ["psst", "psst"]);
    }
});

test("too much is refused, and what is over is forgotten", () => {
    const world = outbox();
    for (let number = 0; number <= 100; number += 1) {
        world.outbox.say(ROOM, {chat: `${number}`}, `k${number}`);
    }
    assert.deepEqual(world.refused, [[{chat: "100"}, "k100", "Too many messages are waiting"]]);
    world.outbox.clear();
    world.outbox.open();
    assert.deepEqual(world.texts(), []);
});

test("a line that the server never takes is refused, and those that were sent with it are not", () => {
    mock.timers.enable({apis: ["setTimeout"]});
    const world = outbox();
    world.outbox.say(ROOM, {chat: "deep"}, "k1");
    world.outbox.say(ROOM, {chat: "fine"}, "k2");
    world.outbox.open();
    const refusal = {successful: false, failure: {httpCode: 400}};
    world.answer(0, refusal);
    world.answer(1, refusal); // for the batch
    mock.timers.tick(1000);
    world.answer(3, {successful: true});
    for (const at of [2, 4, 5]) {
        world.answer(at, refusal);
        mock.timers.tick(1000);
    }
    assert.deepEqual(world.texts(), ["deep", "fine", "deep", "fine", "deep", "deep"]);
    assert.deepEqual(world.refused, [[{chat: "deep"}, "k1", "The server does not take it (400)"]]);
    mock.timers.reset();
});

/** What the chat knows to be a message that came before: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {Acknowledge} from "../../static/chat/acknowledge.js";

/** A session as the client's extension pipe would drive it: returns {connect, reply, tracker}. */
function session(ack = true) {
    const tracker = new Acknowledge();
    tracker.outgoing({channel: "/meta/handshake"});
    tracker.incoming({channel: "/meta/handshake", successful: true, ext: {ack}});
    return {
        tracker,
        /** Sends a connect that would acknowledge `batch`; returns what it does acknowledge. */
        connect: (batch) => tracker.outgoing({channel: "/meta/connect", ext: {ack: batch}}).ext.ack,
        /** Receives these texts and a connect reply; returns how often each came before. */
        reply: (batch, ...texts) => {
            const times = texts.map((chat) => {
                const message = tracker.incoming({channel: "/chat/demo", data: {chat}});
                return message.again?.times ?? 0;
            });
            tracker.incoming({channel: "/meta/connect", successful: true, ext: {ack: batch}});
            return times;
        },
    };
}

test("what was acknowledged is not known any more, so an equal text is new", () => {
    const {connect, reply} = session();
    connect(1);
    assert.deepEqual(reply(2, "hi"), [0]);
    connect(2);
    assert.deepEqual(reply(3, "hi"), [0]);
});

test("equal texts within one reply are different messages", () => {
    const {connect, reply} = session();
    connect(1);
    assert.deepEqual(reply(2, "hi", "hi"), [0, 0]);
});

test("while nothing is acknowledged a repeat is counted, and what follows it is new", () => {
    const {tracker, connect, reply} = session();
    connect(1);
    tracker.hold();
    assert.deepEqual(reply(2, "hi"), [0]);
    assert.equal(connect(2), 1);
    assert.deepEqual(reply(3, "hi"), [1]);
    assert.equal(connect(3), 1);
    assert.deepEqual(reply(4, "hi", "hi", "ho"), [2, 0, 0]);
    assert.equal(tracker.figures.resends, 2);
    assert.equal(tracker.figures.open, 3);
});

test("releasing acknowledges everything that has come", () => {
    const {tracker, connect, reply} = session();
    connect(1);
    tracker.hold();
    reply(2, "hi");
    connect(2);
    reply(3, "hi", "ho");
    tracker.release();
    assert.equal(connect(3), 3);
    assert.deepEqual(tracker.figures, {batch: 3, acknowledged: 3, open: 0, resends: 1});
});

test("a reply that repeats only the beginning is taken up where it stands", () => {
    const {tracker, connect, reply} = session();
    connect(1);
    tracker.hold();
    assert.deepEqual(reply(2, "a", "b", "c"), [0, 0, 0]);
    connect(2);
    assert.deepEqual(reply(3, "a", "b"), [1, 1]);
    connect(3);
    assert.deepEqual(reply(4, "a", "b", "c", "d"), [2, 2, 1, 0]);
});

test("what a lost reply held is new when it comes, because it was never here", () => {
    const {tracker, connect, reply} = session();
    connect(1);
    reply(2, "a");
    connect(2);
    tracker.incoming({channel: "/meta/connect", successful: false});
    connect(2);
    assert.deepEqual(reply(4, "b"), [0]);
});

test("a new session knows nothing of the old one, and a held number starts at nought", () => {
    const {tracker, connect, reply} = session();
    connect(1);
    reply(2, "a");
    tracker.hold();
    tracker.outgoing({channel: "/meta/handshake"});
    tracker.incoming({channel: "/meta/handshake", successful: true, ext: {ack: {enabled: true, batch: 1}}});
    assert.equal(connect(1), 0);
    assert.deepEqual(reply(2, "a"), [0]);
});

test("a session without acknowledgement counts nothing", () => {
    const {tracker, reply} = session(null);
    assert.deepEqual(reply(undefined, "a"), [0]);
    assert.deepEqual(reply(undefined, "a"), [0]);
    assert.deepEqual(tracker.figures, {batch: null, acknowledged: null, open: 0, resends: 0});
});

/** Receives messages with these ids and a connect reply; returns how often each came before. */
function stored(tracker, batch, ...ids) {
    const times = ids.map((id) => tracker.incoming({channel: "/chat/demo", id, data: {chat: "hi"}}).again?.times ?? 0);
    tracker.incoming({channel: "/meta/connect", successful: true, ext: {ack: batch}});
    return times;
}

test("a message that was acknowledged and comes again is known by its id", () => {
    const {tracker, connect} = session();
    connect(1);
    assert.deepEqual(stored(tracker, 2, "10", "11"), [0, 0]);
    connect(2);
    assert.equal(tracker.figures.open, 0);
    assert.deepEqual(stored(tracker, 1001, "11", "12"), [1, 0]);
    assert.equal(tracker.figures.open, 2);
    connect(1001);
    assert.equal(tracker.figures.open, 0);
});

test("equal texts with different ids are different messages, wherever they stand", () => {
    const {tracker, connect, reply} = session();
    connect(1);
    tracker.hold();
    assert.deepEqual(stored(tracker, 2, "10", "11"), [0, 0]);
    connect(2);
    assert.deepEqual(stored(tracker, 3, "11", "10", "12"), [1, 1, 0]);
    assert.deepEqual(reply(4, "hi"), [0]);
});

test("a session without acknowledgement knows ids too", () => {
    const {tracker} = session(null);
    assert.deepEqual(stored(tracker, undefined, "10"), [0]);
    assert.deepEqual(stored(tracker, undefined, "10"), [1]);
});

/** What is known of messages that were broken: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {Breaker, PLAIN, State} from "../../static/chat/breaker.js";

const RECEIVER = "/node/heron/client/anonymous/-7";

/** A breaker with a clock: returns {breaker, clock, hear, state}. */
function desk() {
    const clock = {now: 0};
    const breaker = new Breaker(() => clock.now);
    return {
        breaker,
        clock,
        hear: (id, told = {}) => breaker.hear({data: {chat: id}, ext: {update: {id, ...told}}}, id),
        state: (id) => breaker.fates.find((fate) => fate.id === id)?.state,
    };
}

function letter(message, id = `${message}-0`) {
    return {id, message, receiver: RECEIVER, errorCode: "user.update.error", reason: "no", attempts: 1, data: {chat: message}};
}

test("it throws what was chosen, so often and no more", () => {
    const {breaker, hear} = desk();
    assert.equal(hear("0").failure, null);
    breaker.arm("user.update.error", 2);
    assert.equal(hear("1").failure.errorCode, "user.update.error");
    assert.deepEqual(breaker.armed, {choice: "user.update.error", left: 1});
    assert.ok(hear("2").failure instanceof Error);
    assert.equal(breaker.armed, null);
    assert.equal(hear("3").failure, null);
    assert.deepEqual(breaker.fates.map(({id}) => id), ["1", "2"]);
});

test("a plain exception has no code of its own, and is an internal error", () => {
    const {breaker, hear} = desk();
    breaker.arm(PLAIN, 1);
    const {fate, failure} = hear("1");
    assert.equal(failure.errorCode, undefined);
    assert.equal(fate.code, "user.update.internalError");
    assert.equal(fate.state, State.DEAD);
});

test("a message of which the server will hear nothing is not broken", () => {
    const {breaker} = desk();
    breaker.arm("user.update.error", 1);
    assert.deepEqual(breaker.hear({data: {chat: "x"}}, "x"), {fate: null, failure: null});
    assert.equal(breaker.armed.left, 1);
});

test("a retry counts deliveries until it is taken", () => {
    const {breaker, hear, state} = desk();
    breaker.arm("communication.timeout", 2);
    hear("1");
    assert.equal(state("1"), State.AGAIN);
    assert.equal(hear("1", {redeliver: 1}).fate.deliveries, 2);
    assert.equal(state("1"), State.AGAIN);
    assert.equal(hear("1", {redeliver: 2}).fate.deliveries, 3);
    assert.equal(state("1"), State.TAKEN);
});

test("what is held back is released when it comes again", () => {
    const {breaker, hear, state} = desk();
    breaker.arm("user.update.holdback", 1);
    hear("1");
    assert.equal(breaker.held.id, "1");
    hear("2"); // was on its way
    assert.equal(breaker.held.id, "1");
    hear("1", {redeliver: 1});
    assert.equal(breaker.held, null);
    assert.equal(state("1"), State.TAKEN);
});

test("another message that comes later says that the held one was taken out", () => {
    const {breaker, hear, clock} = desk();
    breaker.arm("user.update.holdback", 1);
    hear("1");
    clock.now = 2001;
    hear("2");
    assert.equal(breaker.held, null);
});

test("the server may not have heard yet of a holdback of just now", () => {
    const {breaker, hear, clock} = desk();
    breaker.arm("user.update.holdback", 1);
    hear("1");
    breaker.noteHeld(null);
    assert.equal(breaker.held.id, "1");
    clock.now = 2001;
    breaker.noteHeld(null);
    assert.equal(breaker.held, null);
    breaker.noteHeld({id: "", since: 7, who: "admin"});
    assert.deepEqual(breaker.held, {id: "", since: 7});
});

test("letters find their message, and others are shown too", () => {
    const {breaker, hear} = desk();
    breaker.arm("user.update.error", 1);
    hear("1");
    breaker.noteLetters([letter("2"), letter("1")], true);
    assert.deepEqual(breaker.fates.map(({id, text, letter: {id: dead}}) => [id, text, dead]), [["1", "1", "1-0"], ["2", "2", "2-0"]]);
});

test("a letter that is gone was dealt with; a list that ends before it says nothing", () => {
    const {breaker, state} = desk();
    breaker.noteLetters([letter("1")], true);
    breaker.noteLetters([], false);
    assert.equal(state("1"), State.DEAD);
    breaker.noteLetters([], true);
    assert.equal(state("1"), State.GONE);
});

test("a redriven letter stays so, also if a list of before still has it", () => {
    const {breaker, hear, state} = desk();
    breaker.noteLetters([letter("1")], true);
    hear("9", {clientProperties: {__redriveOf: "1-0"}});
    assert.equal(state("1"), State.REDRIVEN);
    breaker.noteLetters([letter("1")], true);
    assert.equal(state("1"), State.REDRIVEN);
});

test("a letter that comes back is another message", () => {
    const {breaker, hear, state} = desk();
    breaker.noteLetters([letter("1")], true);
    breaker.arm("user.update.error", 1);
    hear("9", {clientProperties: {__redriveOf: "1-0"}});
    assert.equal(state("1"), State.REDRIVEN);
    assert.equal(state("9"), State.DEAD);
});

test("with the session ends what it waited for", () => {
    const {breaker, hear, state} = desk();
    breaker.arm("communication.timeout", 1);
    hear("1");
    breaker.arm("user.update.holdback", 1);
    hear("2");
    breaker.begin();
    assert.equal(breaker.held, null);
    assert.deepEqual([state("1"), state("2")], [State.DEAD, State.DEAD]);
});

test("no more than twenty are remembered, and clearing forgets all", () => {
    const {breaker, hear} = desk();
    breaker.arm("user.update.error", 30);
    for (let id = 0; id < 25; id += 1) {
        hear(String(id));
    }
    assert.deepEqual(breaker.fates.map(({id}) => Number(id)), [...Array(20).keys()].map((at) => at + 5));
    breaker.clear();
    assert.deepEqual([breaker.fates, breaker.armed, breaker.held], [[], null, null]);
});

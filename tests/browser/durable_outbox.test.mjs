/** What an outbox in IndexedDB refuses before it keeps anything: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {mock, test} from "node:test";
import {Outbox} from "../../extensions/outbox.js";

/** An outbox whose database was never opened: whatever it is asked for must be refused before that. */
function registered() {
    const outbox = new Outbox();
    globalThis.indexedDB = {open: () => ({})};
    outbox.registered("outbox", {});
    return outbox;
}

test("options that are no object are refused", () => {
    assert.throws(() => new Outbox("orders"), {name: "TypeError", message: /takes options.*"orders"/});
    assert.throws(() => new Outbox(null), TypeError);
    assert.throws(() => new Outbox(5n), /takes options/);
    assert.throws(() => new Outbox({name: 5}), {name: "TypeError", message: /name is a string, not 5/});
    assert.throws(() => new Outbox({onRefused: "log"}), {name: "TypeError", message: /onRefused is a function, not "log"/});
    assert.throws(() => new Outbox({onChange: null}), {name: "TypeError", message: /onChange is a function, not null/});
    assert.throws(() => new Outbox({maxMessages: 0}), RangeError);
});

test("an outbox that is not registered says once how to register it", async () => {
    globalThis.indexedDB = {open: () => ({})};
    const warned = mock.method(console, "warn", () => {});
    const outbox = new Outbox();
    outbox.publish("/orders", 1);
    outbox.publish("/orders", 2);
    assert.match(warned.mock.calls[0].arguments[0], /registerExtension\("outbox", outbox\)/);
    assert.equal(warned.mock.callCount(), 1);
    registered().publish("/orders", 1);
    assert.equal(warned.mock.callCount(), 1);
});

test("a pattern is no channel", async () => {
    await assert.rejects(registered().publish("/orders/*", 1), {name: "TypeError", message: /not to a pattern: \/orders\/\*/});
    await assert.rejects(registered().publish("/orders/**", 1), TypeError);
    await assert.rejects(registered().publish("orders", 1), TypeError);
});

test("data that JSON cannot represent is refused", async () => {
    await assert.rejects(registered().publish("/orders"), {name: "TypeError", message: /data of the type undefined/});
    await assert.rejects(registered().publish("/orders", () => 1), /data of the type function/);
    await assert.rejects(registered().publish("/orders", 1n), TypeError);
});

test("text that is not valid Unicode and ext that is no object are refused", async () => {
    await assert.rejects(registered().publish("/orders", {a: ["\ud83d"]}), /data has text that is not valid Unicode: half of/);
    await assert.rejects(registered().publish("/orders", 1, {key: "\udc00"}), /key has text/);
    await assert.rejects(registered().publish("/orders", 1, {ext: "x"}), /ext is an object, such as .*, not "x"/);
    // These are valid: a whole pair, and a backslash before the same letters. The database of this test never opens.
    const outcome = (data) => Promise.race([registered().publish("/orders", data), Promise.resolve("valid")]);
    assert.equal(await outcome("\ud83d\ude00 \\ud83d"), "valid");
});

test("without IndexedDB an outbox says so in one sentence and once", async () => {
    let attempts = 0;
    Object.defineProperty(globalThis, "indexedDB", {configurable: true, get: () => void (attempts += 1)});
    mock.timers.enable({apis: ["setTimeout"]});
    const logged = mock.method(console, "error", () => {});
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    const outbox = new Outbox({name: "orders"});
    outbox.registered("outbox", {});
    outbox.incoming({channel: "/meta/connect", successful: true});
    for (let number = 0; number < 20; number += 1) {
        mock.timers.tick(1000);
        await turn();
    }
    const sentence = "the outbox orders cannot send, and tries again: there is no IndexedDB here: an Outbox without a path works in browsers only";
    const said = logged.mock.calls.map((call) => call.arguments).filter(([first]) => first.startsWith("the outbox"));
    assert.deepEqual(said, [[sentence]]);
    assert.ok(attempts > 3);
    await assert.rejects(outbox.publish("/orders", 1), /there is no IndexedDB here/);
    outbox.unregistered();
    mock.timers.reset();
    delete globalThis.indexedDB;
});

/** Functions of the application that fail. */

import assert from "node:assert/strict";
import {test} from "node:test";

import {callBack} from "../../extensions/callbacks.js";

function reports(t) {
    return t.mock.method(console, "error", () => {}).mock;
}

test("what a function returns is returned", () => {
    assert.equal(callBack("onChange", (one, two) => one + two, 1, 2), 3);
});

test("a function that throws is reported and stops nothing", (t) => {
    const reported = reports(t);
    const error = new Error("broken");
    assert.equal(callBack("onChange", () => { throw error; }), undefined);
    assert.deepEqual(reported.calls[0].arguments, ["crewel: onChange failed", error]);
});

test("an async function that rejects is reported, and ends no program", async (t) => {
    const reported = reports(t);
    const error = new Error("broken");
    await assert.rejects(callBack("onRefused", async () => { throw error; }), error);
    assert.deepEqual(reported.calls[0].arguments, ["crewel: onRefused failed", error]);
});

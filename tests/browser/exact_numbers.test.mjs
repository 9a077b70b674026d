// The numbers of what the operator's page shows and sends: they keep their text.

import assert from "node:assert/strict";
import test from "node:test";

import {parse, parseAnswer, stringify} from "../../static/console/exact_numbers.js";

const KEPT = [
    "9007199254740993", "-18446744073709551617", "12345678901234567.89", "1e400", "1e-400", "-0", "-0.0", "1.0", "1e2", "1E5", "0.10",
    "12", "0.5", "null", "\"1.0\"", "[1.0,2,{\"a\":[3.0]}]", "{\"1.0\":1.0,\"\\\"\":\"\\\\\",\"b\":2.0}", "{\"a\":\"\\\"1.0\\\\\",\"b\":1.0}",
    "{\"__proto__\":1.0}",
];

for (const text of KEPT) {
    test(`${text} is written as it was read`, () => assert.equal(stringify(parse(text)), text));
}

test("a long text needs no deep stack", () => {
    const text = `{"a":"${"b\\n".repeat(10_000_000)}","c":1.0}`;
    assert.equal(stringify(parse(text)), text);
});

test("what is no JSON is refused as usual", () => {
    for (const text of ["01", "1.", "1.2.3", "-", "{", "1.0 2.0"]) {
        assert.throws(() => parse(text), SyntaxError);
    }
});

test("in an answer only opaque fields have exact numbers", () => {
    const answer = parseAnswer("{\"rate\":1.0,\"at\":[-0.0,1e2],\"letters\":[{\"count\":2.0,\"data\":{\"count\":2.0},\"ext\":{\"a\":[1.0]}}]}");
    assert.equal(answer.rate, 1);
    assert.deepEqual(answer.at, [-0, 100]);
    assert.equal(answer.letters[0].count, 2);
    assert.equal(stringify(answer.letters), "[{\"count\":2,\"data\":{\"count\":2.0},\"ext\":{\"a\":[1.0]}}]");
});

test("undefined has no JSON", () => assert.equal(stringify(undefined), undefined));

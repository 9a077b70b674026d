/** What a typed line means: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {parsePhrase} from "../../static/chat/phrase.js";

const CASES = [
    ["hello", "", [], "hello"],
    ["  hello  ", "", [], "hello"],
    ["hello", "joe", ["joe"], "hello"],
    ["joe::hello", "", ["joe"], "hello"],
    ["joe, sue::hello", "", ["joe", "sue"], "hello"],
    ["joe::std::string", "", ["joe"], "std::string"],
    ["sue::hello", "joe", ["sue"], "hello"],
    ["::hello", "", [], "::hello"],
    [",::hello", "", [], ",::hello"],
    ["joe::", "", ["joe"], ""],
    ["", "joe", ["joe"], ""],
];

for (const [line, chosen, peers, text] of CASES) {
    test(`"${line}" with "${chosen}" chosen goes to [${peers}]`, () => {
        assert.deepEqual(parsePhrase(line, chosen), {peers, text});
    });
}

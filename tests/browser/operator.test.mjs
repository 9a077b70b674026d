/** What the page tells an operator whose wish was not granted: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {test} from "node:test";
import {Operator, Refusal} from "../../static/chat/operator.js";

/** An operator whose server answers this: returns {operator, asked}. */
function desk(...answers) {
    const asked = [];
    const operator = new Operator(async (path, request) => {
        asked.push({path, ...request});
        const answer = answers.length > 1 ? answers.shift() : answers[0];
        if (answer instanceof Error) {
            throw answer;
        }
        const [status, body] = answer;
        return new Response(typeof body === "string" ? body : JSON.stringify(body), {status});
    });
    return {operator, asked};
}

test("the token is in the header of each request, and only there", async () => {
    const {operator, asked} = desk([200, {sessions: [], next: ""}]);
    await operator.use("secret");
    assert.ok(operator.hasToken);
    await operator.session("client/anonymous/-7");
    await operator.activate("client/anonymous/-7");
    assert.deepEqual(asked.map(({method, path}) => `${method} ${path}`), [
        "GET /admin/api/sessions?count=1",
        "GET /admin/api/sessions/anonymous/-7",
        "POST /admin/api/sessions/anonymous/-7/activate",
    ]);
    for (const {path, body, headers} of asked) {
        assert.equal(headers.Authorization, "Bearer secret");
        assert.ok(!`${path}${body}`.includes("secret"));
    }
});

const REFUSALS = [
    ["a wrong token", [401, {errorCode: "x", message: "y"}], "The server does not accept this token.", true],
    ["a token of somebody else", [403, {errorCode: "x", message: "no"}], "This token does not allow that: no.", true],
    ["a store that is away", [503, {errorCode: "resource.unavailable", message: "gone"}], "The server replied resource.unavailable: gone.", false],
    ["a page of somebody else", [200, "<html>"], "The server's answer cannot be read.", false],
    ["a server that is away", new TypeError("Failed to fetch"), "The server cannot be reached.", false],
    ["a server that hangs", new DOMException("", "TimeoutError"), "The server's answer cannot be read.", false],
];
for (const [what, answer, text, isAboutToken] of REFUSALS) {
    test(`${what} is told plainly`, async () => {
        const {operator} = desk(answer);
        await assert.rejects(operator.use("secret"), (error) => {
            assert.ok(error instanceof Refusal);
            assert.deepEqual([error.message, error.isAboutToken], [text, isAboutToken]);
            return true;
        });
        assert.ok(!operator.hasToken);
    });
}

test("what no token can be is not sent", async () => {
    const {operator, asked} = desk([200, {}]);
    for (const token of ["", "two words", "tök"]) {
        await assert.rejects(operator.use(token), Refusal);
    }
    assert.deepEqual(asked, []);
});

test("a session that is not there is null, and a command to it is refused", async () => {
    const {operator} = desk([404, {errorCode: "user.illegalArgument", message: "there is no session"}]);
    assert.equal(await operator.session("client/joe/1"), null);
    await assert.rejects(operator.activate("client/joe/1"), /there is no session/);
});

test("the letters of several sessions are all there is only if each list is whole", async () => {
    const {operator, asked} = desk([200, {letters: [{id: "1-0"}], next: ""}], [200, {letters: [{id: "2-0"}], next: "2-0"}]);
    assert.deepEqual(await operator.letters(["client/a/1", "client/a/2"]), {letters: [{id: "1-0"}, {id: "2-0"}], isAll: false});
    assert.ok(asked[1].path.includes("receiver=client%2Fa%2F2"));
});

test("a letter that was not sent is told with the server's reason", async () => {
    const {operator, asked} = desk([200, {redriven: 0, undone: [{id: "1-0", message: "the queue is full"}]}]);
    await assert.rejects(operator.redrive("1-0", true), /It was not sent: the queue is full\./);
    assert.deepEqual(JSON.parse(asked[0].body), {ids: ["1-0"], toChannel: true});
});

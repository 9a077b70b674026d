/** What an outbox keeps in a file: run by node --test, see test_modules.py. */
import assert from "node:assert/strict";
import {spawnSync} from "node:child_process";
import {existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync} from "node:fs";
import fs from "node:fs/promises";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {after, mock, test} from "node:test";
import {Outbox} from "../../extensions/outbox.js";
import {OutboxFile} from "../../extensions/outbox-file.js";
import {Journal} from "../../extensions/outbox-journal.js";

const directory = mkdtempSync(join(tmpdir(), "outbox-"));
let files = 0;
mock.method(console, "warn", () => {}); // that an outbox is not registered

after(() => rmSync(directory, {recursive: true}));

function newPath() {
    files += 1;
    return join(directory, `${files}.outbox`);
}

/** What an outbox keeps. */
function kept(path, limits = {}) {
    return new OutboxFile({path, maxMessages: 1000, maxBytes: 1e6, ...limits});
}

const row = (key, data = 1) => ({key, channel: "/orders", data, ext: {}});
const keys = async (file) => (await file.oldest(1000)).map(({key}) => key);

test("what was kept is there in the next process, in its order, with what was refused", async () => {
    const path = newPath();
    const first = kept(path);
    await Promise.all(["a", "b", "c", "d"].map((key) => first.add(row(key, {of: key}))));
    await first.remove((await first.oldest(1)));
    await first.refuse((await first.oldest(1))[0], {errorCode: "user.illegalArgument", message: "no"});
    await first.close();
    const second = kept(path);
    assert.deepEqual(await keys(second), ["c", "d"]);
    assert.equal(await second.count(), 2);
    const [refused] = await second.refused();
    assert.deepEqual([refused.key, refused.data, refused.refusal], ["b", {of: "b"}, {errorCode: "user.illegalArgument", message: "no"}]);
    await second.remove([refused]);
    await second.add(row("e"));
    await second.close();
    const third = kept(path);
    assert.deepEqual([await keys(third), await third.refused()], [["c", "d", "e"], []]);
    await third.close();
    assert.equal(statSync(path).mode & 0o777, 0o600);
});

test("a key that waits is not kept twice, and takes the place of a refused one", async () => {
    const file = kept(newPath());
    await Promise.all([file.add(row("a", 1)), file.add(row("a", 2))]);
    await file.add(row("a", 3));
    const [only, ...others] = await file.oldest(10);
    assert.deepEqual([only.data, others], [1, []]);
    await file.refuse(only, {errorCode: "x", message: ""});
    await file.add(row("a", 4));
    assert.deepEqual((await file.oldest(10)).map(({data}) => data), [4]);
    assert.deepEqual([await file.count(), await file.refused()], [1, []]);
    await file.close();
});

test("a file that was cut anywhere has all that was whole", async () => {
    const path = newPath();
    const file = kept(path);
    for (const key of ["a", "ä€😀", "c"]) {
        await file.add(row(key, `${key} of data`));
    }
    await file.close();
    const whole = readFileSync(path);
    const ends = [...whole.keys()].filter((at) => whole[at] === 10);
    for (let length = 0; length <= whole.length; length += 1) {
        writeFileSync(path, whole.subarray(0, length));
        const again = kept(path);
        const left = ends.filter((end) => end < length).length - 1;
        assert.deepEqual(await keys(again), ["a", "ä€😀", "c"].slice(0, Math.max(left, 0)), `${length} bytes`);
        await again.add(row("new"));
        await again.close();
        const third = kept(path);
        assert.equal((await keys(third)).at(-1), "new");
        await third.close();
    }
});

test("a damaged file and another file are refused and stay as they are", async () => {
    const path = newPath();
    const file = kept(path);
    await file.add(row("a"));
    await file.close();
    const whole = readFileSync(path);
    for (const line of ["not JSON", "{}"]) {
        writeFileSync(path, `${whole}${line}\n`);
        await assert.rejects(kept(path).count(), /outbox is damaged in line 3/);
    }
    for (const text of ["hello", "hello\n", '{"crewel":"outbox","version":2}\n']) {
        writeFileSync(path, text);
        await assert.rejects(kept(path).count(), {name: "TypeError", message: `${path} is no outbox`});
        assert.equal(readFileSync(path, "utf8"), text);
    }
    await assert.rejects(kept(directory).count(), {code: "EISDIR"});
    await assert.rejects(kept(join(directory, "none", "a")).count(), {code: "ENOENT"});
});

test("one outbox at a time uses a file, also under another name", async () => {
    const path = newPath();
    const first = kept(path);
    await first.add(row("a"));
    const link = newPath();
    symlinkSync(path, link);
    for (const other of [path, link]) {
        await assert.rejects(kept(other).count(), {name: "OutboxInUseError", message: `the outbox ${path} is in use: one process at a time sends what is in it`});
    }
    await first.close();
    const second = kept(link);
    assert.deepEqual(await keys(second), ["a"]);
    await second.close();
    assert.deepEqual(readdirSync(directory).filter((name) => name.includes("lock")), []);
});

test("of outboxes that open a file together at most one gets it", async () => {
    const path = newPath();
    for (let round = 0; round < 20; round += 1) {
        const all = Array.from({length: 4}, () => kept(path));
        const opened = await Promise.allSettled(all.map((each) => each.count()));
        assert.ok(opened.filter(({status}) => status === "fulfilled").length <= 1);
        assert.ok(opened.every(({status, reason}) => status === "fulfilled" || reason.name === "OutboxInUseError"));
        await Promise.all(all.map((each) => each.close()));
    }
    const last = kept(path);
    assert.equal(await last.count(), 0);
    await last.close();
});

test("the socket of a killed process is in no way", async () => {
    const path = newPath();
    const socket = JSON.stringify(`${path}.lock-old`);
    const script = `require("node:net").createServer().listen(${socket}, () => process.kill(process.pid, "SIGKILL"))`;
    assert.equal(spawnSync(process.execPath, ["-e", script]).signal, "SIGKILL");
    assert.ok(existsSync(`${path}.lock-old`));
    const file = kept(path);
    assert.equal(await file.count(), 0);
    assert.ok(!existsSync(`${path}.lock-old`));
    await file.close();
});

test("a file that is closed while it cannot be opened is opened once by the next call", async (context) => {
    const file = kept(newPath());
    const opens = context.mock.method(fs, "open");
    opens.mock.mockImplementationOnce(() => Promise.reject(new Error("no room")));
    const failed = assert.rejects(file.count(), /no room/);
    file.close();
    assert.equal(await file.count(), 0);
    await failed;
    await file.add(row("a"));
    assert.deepEqual(await keys(file), ["a"]);
    await file.close();
});

test("a path that is too long for a socket is refused by name", async () => {
    await assert.rejects(kept(join(directory, "x".repeat(120))).count(), /the path is too long for an outbox/);
});

test("it takes so many messages and bytes", async () => {
    const few = kept(newPath(), {maxMessages: 2});
    const outcomes = await Promise.allSettled(["a", "b", "c"].map((key) => few.add(row(key))));
    assert.deepEqual(outcomes.map(({status}) => status), ["fulfilled", "fulfilled", "rejected"]);
    assert.equal(outcomes[2].reason.message, "the outbox is full: 2 publishes wait for the server");
    await few.remove(await few.oldest(1));
    await few.add(row("c"));
    await few.close();
    const small = kept(newPath(), {maxBytes: 1000});
    await small.add(row("a", "x".repeat(500)));
    await assert.rejects(small.add(row("b", "x".repeat(500))), /the outbox is full: 1000 bytes wait for the server or were refused/);
    await small.refuse((await small.oldest(1))[0], {errorCode: "x", message: ""});
    await assert.rejects(small.add(row("b", "x".repeat(500))), {name: "OutboxFullError"});
    await small.remove(await small.refused());
    await small.add(row("b", "x".repeat(500)));
    await small.close();
});

test("a file does not grow with what was sent", async () => {
    const path = newPath();
    const file = kept(path);
    await file.add(row("stays"));
    for (let round = 0; round < 30; round += 1) {
        const names = Array.from({length: 5}, (_, number) => `${round}-${number}`);
        const added = Promise.all(names.map((key) => file.add(row(key, "x".repeat(50000)))));
        await added;
        const late = file.add(row(`late ${round}`)); // while the file may be replaced
        const [, ...sent] = await file.oldest(6);
        await file.remove(sent);
        await late;
        await file.remove((await file.oldest(9)).slice(1));
    }
    assert.ok(statSync(path).size < 3e6, `${statSync(path).size} bytes`);
    await file.add(row("last"));
    await file.close();
    const again = kept(path);
    assert.deepEqual(await keys(again), ["stays", "last"]);
    await again.close();
    assert.ok(!existsSync(`${path}.new`));
});

/** Adds rows, refuses the second and the third, and removes so many bytes that the file is written again; meanwhile calls `work`. */
async function written(path, work) {
    const file = kept(path, {maxBytes: 4e6});
    await Promise.all(["large", "seen", "refused", "late", "last"].map((key) => file.add(row(key, "x".repeat(key === "large" ? 2e6 : 1)))));
    const [large, ...others] = await file.oldest(9);
    for (const each of others.slice(0, 2)) {
        await file.refuse(each, {errorCode: "x", message: "no"});
    }
    const {rewrite} = Journal.prototype;
    let working;
    const patched = mock.method(Journal.prototype, "rewrite", function (remaining) {
        working = work(file, others);
        return rewrite.call(this, remaining);
    });
    await file.remove([large]);
    await working;
    assert.equal(patched.mock.callCount(), 1);
    patched.mock.restore();
    await file.close();
}

test("what is removed or refused while the file is written again is so in the next process", async () => {
    const path = newPath();
    await written(path, (file, [seen, , late]) => Promise.all([file.remove([seen]), file.refuse(late, {errorCode: "y", message: "no"})]));
    assert.match(readFileSync(path, "utf8"), /"gone":2}\n.*"refused":4,/s);
    const again = kept(path);
    assert.deepEqual([await again.count(), await keys(again)], [1, ["last"]]);
    assert.deepEqual((await again.refused()).map(({key, refusal}) => [key, refusal.errorCode]), [["refused", "x"], ["late", "y"]]);
    await again.close();
});

test("what is removed twice, or replaced meanwhile, does not damage the file", async () => {
    const path = newPath();
    const file = kept(path);
    await Promise.all(["a", "b", "c"].map((key) => file.add(row(key))));
    for (const each of (await file.oldest(2))) {
        await file.refuse(each, {errorCode: "x", message: "no"});
    }
    const refused = await file.refused();
    await Promise.all([file.add(row("b", "again")), file.remove(refused), file.remove(refused)]);
    await file.close();
    const next = kept(path);
    assert.deepEqual([await next.count(), await keys(next), await next.refused()], [2, ["c", "b"], []]);
    await next.close();
});

test("a rewriting that fails leaves nothing beside the file", async () => {
    const path = newPath();
    const renames = mock.method(fs, "rename", () => Promise.reject(new Error("no room")));
    await written(path, () => {});
    assert.equal(renames.mock.callCount(), 1);
    renames.mock.restore();
    assert.ok(!existsSync(`${path}.new`));
    const again = kept(path);
    assert.deepEqual(await keys(again), ["late", "last"]);
    await again.close();
});

test("an outbox takes a path, and says what it cannot be", async () => {
    assert.throws(() => new Outbox({path: 5}), {name: "TypeError", message: /path is that of a file, such as "orders.outbox".*not 5/});
    assert.throws(() => new Outbox({path: ""}), TypeError);
    assert.throws(() => new Outbox({path: "a", name: "b"}), /takes the place of name/);
    assert.throws(() => new Outbox({path: "a", maxBytes: 0}), {name: "RangeError", message: /maxBytes is a whole number from 1, not 0/});
    const path = newPath();
    const outbox = new Outbox({path});
    const order = {pizzas: 1};
    const sent = outbox.publish("/orders", order, {key: "mine"});
    order.pizzas = 2;
    assert.equal(await sent, "mine");
    assert.equal(outbox.waiting, 1);
    assert.equal((await outbox.refused()).length, 0);
    await assert.rejects(outbox.publish("/orders", {of: new Uint8Array(2)}), /data.of is 2 bytes, which JSON cannot represent/);
    await outbox.close();
    const again = kept(path);
    assert.deepEqual((await again.oldest(1)).map(({data}) => data.pizzas), [1]);
    await again.close();
});

test("functions of the application that throw stop nothing", async (context) => {
    const {mock: errors} = context.mock.method(console, "error", () => {});
    const fail = () => {
        throw new Error("no badge");
    };
    const sent = [];
    const outbox = new Outbox({path: newPath(), onChange: fail, onRefused: fail});
    outbox.registered("outbox", {
        batch: (send) => send(),
        publish: (channel, data, fields, answered) => {
            sent.push(data);
            answered(data === 1 ? {successful: false, error: "403::publish_denied"} : {successful: true});
        },
    });
    assert.equal(await outbox.publish("/a", 1, {key: "mine"}), "mine");
    await outbox.publish("/a", 2);
    outbox.incoming({channel: "/meta/connect", successful: true});
    await outbox.drained();
    assert.deepEqual(sent, [1, 2]);
    assert.deepEqual((await outbox.refused()).map(({data}) => data), [1]);
    outbox.unregistered();
    await outbox.close();
    assert.deepEqual(new Set(errors.calls.map(({arguments: [text]}) => text)), new Set(["crewel: onChange failed", "crewel: onRefused failed"]));
});

/** A registered and connected outbox, with a client that answers each publish so. */
function connected(answer) {
    const sent = [];
    const batches = [];
    const outbox = new Outbox({path: newPath()});
    outbox.registered("outbox", {
        batch: (send) => {
            batches.push(performance.now());
            send();
        },
        publish: (channel, data, fields, answered) => {
            sent.push(data);
            answered(answer(channel, data));
        },
    });
    return {outbox, sent, batches, connect: () => outbox.incoming({channel: "/meta/connect", successful: true})};
}

const range = (count) => Array.from({length: count}, (_, number) => number);
const limited = (limit, errorCode, retryAfter) => ({successful: false, error: `429:${limit}:${errorCode}`, ext: {publish: {errorCode, retryAfter}}});

test("a cap of the server keeps only the channel waiting that it stops", async () => {
    let isFull = true;
    const {outbox, sent, connect} = connected((channel) => {
        isFull = isFull && channel !== "/old";
        return isFull ? limited("limits.max_channels", "resource.exhaust", 100) : {successful: true};
    });
    await Promise.all(range(60).map((number) => outbox.publish("/new", number)));
    await outbox.publish("/old", "other");
    connect();
    await outbox.drained();
    assert.deepEqual(sent, [...range(50), "other", ...range(60)]);
    assert.deepEqual(await outbox.refused(), []);
    outbox.unregistered();
    await outbox.close();
});

test("a rate of the server puts publishes off for as long as the server says, and they are sent together then", async () => {
    let left = 20;
    const {outbox, sent, batches, connect} = connected(() => {
        left -= 1;
        return left >= 0 ? limited("limits.publishes_per_s", "resource.temporary.unavailable", 1500) : {successful: true};
    });
    await Promise.all(range(20).map((number) => outbox.publish("/orders", number)));
    connect();
    await outbox.drained();
    assert.deepEqual(sent, [...range(20), ...range(20)]);
    assert.equal(batches.length, 2);
    assert.ok(batches[1] - batches[0] >= 1490, `after ${batches[1] - batches[0]} ms`);
    assert.deepEqual(await outbox.refused(), []);
    outbox.unregistered();
    await outbox.close();
});

test("an outbox that is unregistered while it reads sends nothing, and has no failure", async (context) => {
    const {mock: errors} = context.mock.method(console, "error", () => {});
    const {outbox, sent, connect} = connected(() => ({successful: true}));
    await outbox.publish("/orders", 1);
    const read = new Promise((resolve) => {
        context.mock.method(OutboxFile.prototype, "oldest", async () => {
            await fs.stat(directory); // it takes a moment
            outbox.unregistered();
            resolve();
            return [{...row("mine"), position: 1}];
        });
    });
    connect();
    await read;
    await outbox.close();
    assert.deepEqual(errors.calls.map(({arguments: [text]}) => text), []);
    assert.deepEqual(sent, []);
});

test("a publish that is on disk is no failure, even if the outbox cannot be counted then", async (context) => {
    const {mock: errors} = context.mock.method(console, "error", () => {});
    const path = newPath();
    const outbox = new Outbox({path});
    const counts = context.mock.method(OutboxFile.prototype, "count", () => Promise.reject(new Error("no count")));
    assert.equal(await outbox.publish("/a", 1, {key: "mine"}), "mine");
    assert.deepEqual(errors.calls.map(({arguments: [text]}) => text), [`the outbox ${path} cannot send, and tries again: no count`]);
    counts.mock.restore();
    await outbox.close();
    const again = kept(path);
    assert.deepEqual(await keys(again), ["mine"]);
    await again.close();
});

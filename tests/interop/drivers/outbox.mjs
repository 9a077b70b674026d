/*
 * An outbox in a file, over the official client in Node.js: `node outbox.mjs URL PATH RUN [MOST]`. It publishes [RUN, 0], [RUN, 1] and so
 * on, several at a time, and prints each number when the outbox has it. After MOST of them, it waits until all are sent, and ends.
 * Without MOST, it continues until it is killed.
 */
import {writeSync} from "node:fs";
import {adapt} from "cometd-nodejs-client";

adapt();
const {connect} = await import("../../../extensions/connect.js");

const [url, path, run, most = "Infinity"] = process.argv.slice(2);
const say = (...words) => writeSync(1, `${words.join(" ")}\n`);
const onRefused = ({errorCode, data}) => say("refused", errorCode, data);
const connection = connect({url, outbox: {path, onRefused}});
const TOGETHER = 3;
let next = 0;

async function publish() {
    while (next < Number(most)) {
        const number = next;
        next += 1;
        await keep(number);
        say(number);
    }
}

/** A disk may be faster than the server: then the outbox becomes full, and the next publish waits until it is empty. */
async function keep(number) {
    for (;;) {
        try {
            return await connection.outbox.publish("/kills/a", [Number(run), number]);
        } catch (error) {
            if (error.name !== "OutboxFullError") {
                throw error;
            }
            await connection.outbox.drained();
        }
    }
}

try {
    await Promise.all(Array.from({length: TOGETHER}, publish));
    await connection.outbox.publish("/kills/a", "wrong", {ext: {publish: {priority: 77}}});
    await connection.outbox.drained();
    const [refused] = await connection.outbox.refused();
    await connection.outbox.forgetRefused();
    say("drained", connection.outbox.waiting, refused.message);
    await connection.close();
} catch (error) {
    say(`${error.name}: ${error.message}`);
    process.exit(1);
}

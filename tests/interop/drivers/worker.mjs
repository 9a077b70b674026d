/*
 * A worker on the official client: `node worker.mjs URL NAME DIRECTORY`; tests/faults/worker.py is its twin.
 *
 * It notes each order in a book, a file of the directory with a line for each, and then prints its id. An order that was noted before
 * a kill, and not acknowledged, comes again: the book tells.
 */
import {closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync, writeSync} from "node:fs";
import {join} from "node:path";
import {adapt} from "cometd-nodejs-client";
import {AckExtension, CometD} from "cometd";
import {SessionExtension} from "../../../extensions/session.js";
import {UpdateExtension} from "../../../extensions/update.js";

adapt();
console.log = console.info = console.debug = console.error;

const [url, name, directory] = process.argv.slice(2);

/** Where the secret of the session is; a kill leaves the whole of one. */
const kept = {
    path: join(directory, "resume"),
    getItem() {
        try {
            return readFileSync(this.path, "utf8");
        } catch {
            return null;
        }
    },
    setItem(_, value) {
        writeFileSync(`${this.path}.new`, value);
        renameSync(`${this.path}.new`, this.path);
    },
    removeItem() {
        rmSync(this.path, {force: true});
    },
};

const path = join(directory, "book");
closeSync(openSync(path, "a"));
const text = readFileSync(path, "utf8");
const whole = text.slice(0, text.lastIndexOf("\n") + 1);
truncateSync(path, Buffer.byteLength(whole)); // a kill may have left half a line
const noted = new Set(whole.split("\n").map(line => line.split(" ")[0]));
const book = openSync(path, "a");

function work(order) {
    if (!noted.has(order.id)) {
        writeSync(book, `${order.id} ${order.data.n}\n`);
        fsyncSync(book);
        noted.add(order.id);
    }
    writeSync(1, `${order.id}\n`);
}

const cometd = new CometD();
cometd.registerExtension("ack", new AckExtension());
cometd.registerExtension("session", new SessionExtension({name, persistent: true}, {storage: kept}));
cometd.registerExtension("update", new UpdateExtension());
// If the connection breaks before the answer, the client removes the listener, and the session continues without it.
function subscribe() {
    cometd.clearSubscriptions();
    cometd.subscribe("/orders/new", work, reply => reply.failure && setTimeout(subscribe, 1000));
}
cometd.addListener("/meta/handshake", reply => reply.successful && subscribe());
cometd.init(url);

/**
 * That one process at a time uses a file. Its owner listens at a socket beside it; that of a killed process answers no more. Each
 * announces itself before it looks for others, so of two that begin together none can miss the other.
 */

import {OutboxInUseError} from "./outbox-errors.js";
import {builtin} from "./outbox-journal.js";

const LONGEST = 100; // bytes of a socket's path: systems take 103 or 107

/** Resolves to a function that gives the file up. Rejects with an OutboxInUseError if another process, or this one, has it. */
export async function owned(path) {
    const [fs, paths] = [builtin("node:fs/promises"), builtin("node:path")];
    const prefix = `${paths.basename(path)}.lock-`;
    const own = `${prefix}${globalThis.crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    const at = (name) => {
        const whole = paths.join(paths.dirname(path), name);
        const short = paths.relative(process.cwd(), whole);
        return short.length < whole.length ? short : whole;
    };
    if (Buffer.byteLength(at(own)) > LONGEST) {
        throw new TypeError(`the path is too long for an outbox, which needs a socket beside its file: ${path}`);
    }
    const server = await listening(at(own));
    const release = () => new Promise((resolve) => server.close(resolve));
    try {
        for (const name of await fs.readdir(paths.dirname(path))) {
            if (name.startsWith(prefix) && name !== own) {
                if (await answers(at(name))) {
                    throw new OutboxInUseError(path);
                }
                await fs.rm(at(name), {force: true});
            }
        }
        await fs.access(at(own)); // another one has taken it for that of a killed process
    } catch (error) {
        await release();
        throw error.code === "ENOENT" ? new OutboxInUseError(path) : error;
    }
    return release;
}

function listening(path) {
    return new Promise((resolve, reject) => {
        const server = builtin("node:net").createServer((socket) => socket.destroy());
        server.unref(); // a program may end
        server.once("error", reject);
        server.listen(path, () => resolve(server));
    });
}

/** Whether a process listens at this socket; also if that cannot be known, as of another user's process. */
function answers(path) {
    return new Promise((resolve) => {
        const socket = builtin("node:net").connect(path, () => {
            socket.destroy();
            resolve(true);
        });
        socket.once("error", ({code}) => resolve(code !== "ECONNREFUSED" && code !== "ENOENT"));
    });
}

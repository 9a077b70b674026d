/**
 * What an outbox keeps in Node.js: a file, with which the next process continues. Each line says what was added, removed or refused.
 * The publishes are in memory, too.
 */

import {copied} from "./encodable.js";
import {Journal, builtin} from "./outbox-journal.js";
import {OutboxFullError} from "./outbox-errors.js";
import {owned} from "./outbox-lock.js";

const HEADER = '{"crewel":"outbox","version":1}';
const SPARE = 1 << 20; // bytes of lines of no use that are not worth a rewriting

export class OutboxFile {
    #path;
    #maxMessages;
    #maxBytes;
    #opening = null; // a promise of {journal, release}
    #closing = Promise.resolve();
    #adding = new Map(); // by key: the promise of a publish that is on its way to the disk
    #owed = []; // lines that could not be written: what they say is so in memory
    #rows; // by position, oldest first: {position, key, channel, data, ext, refusal, line}
    #positions; // by key
    #latest; // position
    #waiting; // how many of them are not refused
    #bytes; // of their lines, and of those on their way

    constructor({path, maxMessages, maxBytes}) {
        this.#path = path;
        this.#maxMessages = maxMessages;
        this.#maxBytes = maxBytes;
    }

    // One process has the file, so there are no others to tell or to wait for.

    hear() {}

    tell() {}

    alone(work) {
        return work();
    }

    /** Gives the file up, after what is on its way. The next call takes it again. */
    close() {
        if (this.#opening !== null) {
            this.#closing = this.#giveUp(this.#opening);
            this.#opening = null;
        }
        return this.#closing;
    }

    async count() {
        await this.#opened();
        return this.#waiting;
    }

    async oldest(most, isWanted = () => true) {
        await this.#opened();
        const found = [];
        for (const row of this.#rows.values()) {
            if (found.length === most) {
                break;
            }
            if (!row.refusal && isWanted(row)) {
                found.push(row);
            }
        }
        return found;
    }

    async refused() {
        await this.#opened();
        return [...this.#rows.values()].filter((row) => row.refusal);
    }

    /** Keeps a publish, unless one with its key waits. It takes the place of a refused one. */
    async add({key, channel, data, ext}) {
        const own = {key, channel, data: copied(data), ext: copied(ext, "ext")}; // before anything else can change it
        const {journal} = await this.#opened();
        const known = this.#rows.get(this.#positions.get(key));
        if (this.#adding.has(key) || (known && !known.refusal)) {
            return this.#adding.get(key);
        }
        const position = this.#latest + 1;
        const line = lineOf({position, ...own});
        const bytes = Buffer.byteLength(line);
        this.#checkRoom(bytes);
        this.#latest = position;
        this.#bytes += bytes; // before it is on disk: others that come meanwhile find the room taken
        const written = () => {
            if (known) {
                this.#drop(known);
            }
            this.#put({position, ...own, bytes});
            this.#waiting += 1;
        };
        const adding = journal.append(known ? [goneOf(known), line] : [line], written);
        this.#adding.set(key, adding);
        try {
            await adding;
        } catch (error) {
            this.#bytes -= bytes;
            throw error;
        } finally {
            this.#adding.delete(key);
        }
    }

    /** The server has these, or the application has seen that it refused them. */
    async remove(rows) {
        const {journal} = await this.#opened();
        rows.forEach((row) => this.#drop(row));
        await this.#settle(journal, rows.map(goneOf));
        if (journal.size > 2 * this.#bytes + SPARE) {
            // If there is no room for another file, this one stays as it is until it is tried again.
            await journal.rewrite(() => [...this.#rows.values()].flatMap(linesOf)).catch(() => {});
        }
    }

    /** Sets a publish aside. `refusal` is {errorCode, message}. */
    async refuse(row, refusal) {
        const {journal} = await this.#opened();
        this.#refuse(row, refusal);
        await this.#settle(journal, [refusalOf(row)]);
    }

    #checkRoom(bytes) {
        if (this.#waiting + this.#adding.size >= this.#maxMessages) {
            throw new OutboxFullError(this.#maxMessages);
        }
        if (this.#bytes + bytes > this.#maxBytes) {
            throw new OutboxFullError(this.#maxBytes, "bytes wait for the server or were refused");
        }
    }

    #put(row) {
        this.#rows.set(row.position, row);
        this.#positions.set(row.key, row.position);
    }

    // A file may say twice that a row is gone or refused, or say it of a row that it does not have: memory changes before the lines
    // are on disk, and a rewriting in between writes what is in memory.

    #refuse(row, refusal) {
        if (row && !row.refusal) {
            row.refusal = refusal;
            this.#waiting -= 1;
        }
    }

    #drop(row) {
        if (row && this.#rows.delete(row.position)) {
            this.#positions.delete(row.key);
            this.#bytes -= row.bytes;
            this.#waiting -= row.refusal ? 0 : 1;
        }
    }

    async #settle(journal, lines) {
        const owed = [...this.#owed.splice(0), ...lines];
        try {
            await journal.append(owed, () => {});
        } catch (error) {
            this.#owed.unshift(...owed);
            throw error;
        }
    }

    #opened() {
        if (this.#opening === null) {
            const opening = this.#take();
            this.#opening = opening;
            opening.catch(() => {
                if (this.#opening === opening) { // and not a later one, after a close()
                    this.#opening = null;
                }
            });
        }
        return this.#opening;
    }

    async #giveUp(opening) {
        const opened = await opening.catch(() => null);
        await opened?.journal.close();
        await opened?.release();
    }

    async #take() {
        await this.#closing;
        const fs = builtin("node:fs/promises");
        await (await fs.open(this.#path, "a", 0o600)).close(); // so that there is a file to which links may point
        const path = await fs.realpath(this.#path);
        const release = await owned(path);
        try {
            const journal = new Journal(path, HEADER);
            this.#replay(await journal.open());
            return {journal, release};
        } catch (error) {
            await release();
            throw error;
        }
    }

    #replay(lines) {
        [this.#rows, this.#positions, this.#latest, this.#waiting, this.#bytes] = [new Map(), new Map(), 0, 0, 0];
        lines.forEach((line, index) => {
            try {
                this.#read(JSON.parse(line), Buffer.byteLength(line));
            } catch {
                throw new Error(`the outbox ${this.#path} is damaged in line ${index + 2}`);
            }
        });
    }

    #read({position, key, channel, data, ext, gone, refused, ...refusal}, bytes) {
        if (position !== undefined) {
            this.#put({position, key, channel, data, ext, bytes});
            this.#latest = position;
            this.#waiting += 1;
            this.#bytes += bytes;
        } else if (refused !== undefined) {
            this.#refuse(this.#rows.get(refused), refusal);
        } else if (gone !== undefined) {
            this.#drop(this.#rows.get(gone));
        } else {
            throw new TypeError("a line says nothing that this version knows");
        }
    }
}

function lineOf({position, key, channel, data, ext}) {
    return JSON.stringify({position, key, channel, data, ext});
}

function refusalOf({position, refusal}) {
    return JSON.stringify({refused: position, ...refusal});
}

function goneOf({position}) {
    return JSON.stringify({gone: position});
}

function linesOf(row) {
    return row.refusal ? [lineOf(row), refusalOf(row)] : [lineOf(row)];
}

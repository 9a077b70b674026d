/**
 * A file of lines in Node.js that survives the end of its process at any moment. A line counts when it is on disk with its end; a last
 * line without its end is cut off when the file is opened. Lines that are appended at the same time are written together. Knows nothing of
 * what the lines say.
 */

const END = "\n";

/** A module of Node.js, which no bundler of a page looks for. */
export function builtin(name) {
    const found = globalThis.process?.getBuiltinModule?.(name);
    if (!found) {
        throw new TypeError("an outbox with a path works in Node.js only, from version 20.16 on");
    }
    return found;
}

export class Journal {
    #path;
    #header;
    #handle = null;
    #queue = []; // {lines, written}: what the next write takes
    #next = null; // the promise of that write, which has not begun
    #last = Promise.resolve(); // the one before
    #size = 0; // bytes that count
    #isCut = false; // whether there may be more bytes

    /** @param header the first line, which says what the file is */
    constructor(path, header) {
        this.#path = path;
        this.#header = header;
    }

    /** The bytes of the file. */
    get size() {
        return this.#size;
    }

    /** Opens the file, or creates it; resolves to its lines. */
    async open() {
        this.#handle = await builtin("node:fs/promises").open(this.#path, "a+", 0o600);
        const bytes = await this.#handle.readFile();
        this.#size = bytes.lastIndexOf(END) + 1;
        this.#isCut = this.#size < bytes.length;
        const [header, ...lines] = bytes.toString("utf8", 0, this.#size).split(END).slice(0, -1);
        if (this.#size === 0 && this.#header.startsWith(bytes.toString())) {
            await this.#put(`${this.#header}${END}`);
            await this.#syncDirectory();
        } else if (header !== this.#header) {
            throw new TypeError(`${this.#path} is no outbox`);
        }
        return lines;
    }

    /** Resolves when these lines are on disk. `written` is called before anything else is written. */
    append(lines, written) {
        this.#queue.push({lines, written});
        this.#next ??= this.#after(async () => {
            this.#next = null;
            const taken = this.#queue.splice(0);
            await this.#put(taken.flatMap((each) => each.lines).map((line) => line + END).join(""));
            taken.forEach((each) => each.written());
        });
        return this.#next;
    }

    /** Replaces the file by one with the lines that this function returns when nothing else is written. */
    rewrite(remaining) {
        return this.#after(async () => {
            const fs = builtin("node:fs/promises");
            const path = `${this.#path}.new`;
            await fs.rm(path, {force: true});
            const handle = await fs.open(path, "a+", 0o600);
            const bytes = Buffer.from([this.#header, ...remaining()].map((line) => line + END).join(""));
            try {
                await handle.appendFile(bytes);
                await handle.datasync();
                await fs.rename(path, this.#path);
            } catch (error) {
                await handle.close();
                await fs.rm(path, {force: true}); // on a full disk, it takes the room that lines need
                throw error;
            }
            const old = this.#handle;
            [this.#handle, this.#size, this.#isCut] = [handle, bytes.length, false];
            await old.close();
            await this.#syncDirectory();
        });
    }

    /** Closes the file when all is written. */
    async close() {
        await this.#after(() => this.#handle?.close());
    }

    #after(work) {
        const done = this.#last.then(work);
        this.#last = done.catch(() => {});
        return done;
    }

    async #put(text) {
        const bytes = Buffer.from(text);
        if (this.#isCut) {
            await this.#handle.truncate(this.#size);
        }
        this.#isCut = true; // unless this succeeds
        await this.#handle.appendFile(bytes);
        await this.#handle.datasync();
        this.#size += bytes.length;
        this.#isCut = false;
    }

    /** Otherwise a new name might not outlive a failure of the machine. */
    async #syncDirectory() {
        const directory = await builtin("node:fs/promises").open(builtin("node:path").dirname(this.#path));
        try {
            await directory.sync();
        } finally {
            await directory.close();
        }
    }
}

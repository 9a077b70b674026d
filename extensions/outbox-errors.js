/** Why an outbox takes no publish. */

/** The outbox is full. */
export class OutboxFullError extends Error {
    constructor(most, unit = "publishes wait for the server") {
        super(`the outbox is full: ${most} ${unit}`);
        this.name = "OutboxFullError";
    }
}

/** Another process, or another outbox of this one, uses the file. */
export class OutboxInUseError extends Error {
    constructor(path) {
        super(`the outbox ${path} is in use: one process at a time sends what is in it`);
        this.name = "OutboxInUseError";
    }
}

/*
 * What the Node drivers share: JSON commands on stdin, one a line, and JSON lines on stdout.
 *
 *   -> {"id": 3, "do": "publish", "channel": "/a", "data": 1}
 *   <- {"answer": 3, "successful": true}
 *   <- {"event": "message", "subscription": "/a", "channel": "/a", "data": 1}
 *
 * peers.py, beside this directory, documents the commands and events.
 */
import readline from "node:readline";

// Stdout belongs to the protocol; what a client library prints is for people.
console.log = console.info = console.debug = console.error;

export function tell(line) {
    process.stdout.write(JSON.stringify(line) + "\n");
}

/** Carries out commands with the functions of this table until stdin ends; each returns (a promise of) its answer. */
export function obey(table) {
    const lines = readline.createInterface({input: process.stdin});
    lines.on("line", async line => {
        const command = JSON.parse(line);
        try {
            tell({answer: command.id, ...await table[command.do](command)});
        } catch (problem) {
            tell({answer: command.id, failed: String(problem?.stack ?? problem)});
        }
    });
    lines.on("close", () => process.exit(0));
}

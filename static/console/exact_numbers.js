/**
 * JSON whose numbers keep their text, as on the way through the server.
 *
 * JavaScript reads 9007199254740993 as another number, and writes 1.0 as 1, which is another type to receivers in Java and Python.
 * JSON.rawJSON would do, but browsers from before 2025 do not have it.
 */

/** Begins the text that stands for a number while `JSON` reads and writes. No message has it: each load of the page makes it. */
const MARK = `number-${crypto.getRandomValues(new Uint32Array(4)).join("-")}:`;
const MARKED = RegExp(`"${MARK}([^"]*)"`, "g");

/** Fields of answers with what clients have sent, or with any value. In the others, numbers are for the page to calculate with. */
const OPAQUE = ["clientProperties", "data", "ext", "result"];

/** A number that JavaScript would write otherwise. */
class ExactNumber {
    constructor(text) {
        this.text = text;
    }

    toJSON() {
        return MARK + this.text;
    }
}

/** The value of this JSON, for `stringify`. Raises SyntaxError. */
export function parse(text) {
    return read(text, true);
}

/** The value of an answer of the server: only what is opaque in it has exact numbers. Raises SyntaxError. */
export function parseAnswer(text) {
    return read(text, false);
}

/** The JSON of a value, also of one that `parse` has made. */
export function stringify(value, indent) {
    return JSON.stringify(value, null, indent)?.replace(MARKED, "$1");
}

function read(text, isOpaque) {
    const value = JSON.parse(text); // first of all: with marks, 01 would be JSON
    const marked = mark(text);
    return marked === text ? value : unmark(JSON.parse(marked), isOpaque);
}

/** The JSON with a text in place of each number that JavaScript would write otherwise. */
function mark(text) {
    let isString = false;
    // No expression for a whole string: a long one takes more stack than a browser has.
    return text.replace(/\\.|"|-?[0-9][0-9.eE+-]*/g, (token) => {
        if (token === "\"") {
            isString = !isString;
        }
        return isString || token === "\"" || String(Number(token)) === token ? token : `"${MARK}${token}"`;
    });
}

function unmark(value, isOpaque) {
    if (typeof value === "string" && value.startsWith(MARK)) {
        const text = value.slice(MARK.length);
        return isOpaque ? new ExactNumber(text) : Number(text);
    }
    if (value !== null && typeof value === "object") {
        for (const [key, each] of Object.entries(value)) {
            value[key] = unmark(each, isOpaque || OPAQUE.includes(key));
        }
    }
    return value;
}

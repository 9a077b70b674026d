/**
 * Requests to /admin/api, with the cookie of the operator who has signed in.
 */

import {parseAnswer, stringify} from "./exact_numbers.js";

export class Refused extends Error {
    constructor(status, code, message) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

/** No answer came: the server does not run, or the network is down. */
export class Unreachable extends Error {
    constructor() {
        super(globalThis.navigator?.onLine === false ? "This device is offline." : "The server cannot be reached.");
    }
}

/**
 * The JSON that the server answers. `about` is a path below /admin/api or a Resource. Raises Refused, also if the answer is
 * about another resource, or Unreachable.
 */
export async function call(method, about, {query = {}, body} = {}) {
    const {path, query: named} = typeof about === "string" ? {path: about, query: {}} : about.address;
    const given = Object.entries({...query, ...named}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    const search = new URLSearchParams(given).toString();
    const response = await fetch(`/admin/api${path}${search && "?"}${search}`, {
        method,
        credentials: "same-origin",
        headers: body === undefined ? {} : {"Content-Type": "application/json"},
        body: body === undefined ? undefined : stringify(body),
    }).catch(unreachable);
    const answer = read(await response.text().catch(unreachable));
    if (response.ok && answer !== null) {
        if (typeof about !== "string") {
            about.check(answer);
        }
        return answer;
    }
    if (response.status === 401 && path !== "/sign-in") {
        window.dispatchEvent(new Event("signedout"));
    }
    const usual = response.ok ? "something on the way to the server has answered in its place" : `the server answered ${response.status}`;
    throw new Refused(response.status, answer?.errorCode, answer?.message || usual);
}

function unreachable() {
    throw new Unreachable();
}

/** The answer; null for what is no JSON, such as the page of a proxy. */
function read(text) {
    try {
        return parseAnswer(text);
    } catch {
        return null;
    }
}

export const get = (about, query) => call("GET", about, {query});
export const post = (about, body) => call("POST", about, {body});

/** What is there; null if there is nothing. */
export async function find(about, query) {
    return get(about, query).catch((error) => {
        if (error.status !== 404) {
            throw error;
        }
        return null;
    });
}

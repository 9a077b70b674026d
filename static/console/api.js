/**
 * Requests to /admin/api, with the cookie of the operator who has signed in.
 */

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
        super("The server cannot be reached.");
    }
}

/** The JSON that the server answers. Raises Refused, or Unreachable. */
export async function call(method, path, {query = {}, body} = {}) {
    const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    const search = new URLSearchParams(given).toString();
    const response = await fetch(`/admin/api${path}${search && "?"}${search}`, {
        method,
        credentials: "same-origin",
        headers: body === undefined ? {} : {"Content-Type": "application/json"},
        body: body === undefined ? undefined : JSON.stringify(body),
    }).catch(() => {
        throw new Unreachable();
    });
    if (response.ok) {
        return response.json();
    }
    const told = await response.json().catch(() => ({message: `the server answered ${response.status}`}));
    if (response.status === 401 && path !== "/sign-in") {
        window.dispatchEvent(new Event("signedout"));
    }
    throw new Refused(response.status, told.errorCode, told.message);
}

export const get = (path, query) => call("GET", path, {query});
export const post = (path, body) => call("POST", path, {body});

/** The options of `connect()`: what they must be, what they are if left out, and whether two calls ask for the same. */

const DELAYS = {minDelay: 1000, maxDelay: 5000}; // the longest is less than bayeux.max_interval_ms: the session is still there
const TIMEOUT_MS = 10000; // of a publish or a request that waits for the server
const DEFAULTS = {session: {}, waits: true, retry: DELAYS, timeout: TIMEOUT_MS, outbox: {}, cometd: {}};
const SUBJECT = /^(?:\/node\/[^/]*\/(?=client\/))?(?:client\/)?([^/]+)/; // `joe` of `/node/heron/client/joe/1`

/** Returns the options with what was left out. Throws a TypeError that names what is wrong. */
export function completed(options) {
    if (options === null || typeof options !== "object" || typeof options.url !== "string" || !options.url) {
        throw new TypeError('connect takes options with a url, such as connect({url: "/cometd"})');
    }
    const {name, token, traces} = options;
    if (name !== undefined && (typeof name !== "string" || !name)) {
        throw new TypeError(`name is a string, such as "joe/1", not ${String(name)}`);
    }
    if (token !== undefined && typeof token !== "string" && typeof token !== "function") {
        throw new TypeError(`token is a string or a function that returns one, not ${typeof token}`);
    }
    if (traces !== undefined && typeof traces?.trace?.getTracer !== "function") {
        throw new TypeError("traces is what @opentelemetry/api exports, as in import * as traces from \"@opentelemetry/api\"");
    }
    return {...DEFAULTS, ...given(options), retry: {...DELAYS, ...options.retry}};
}

/** The options of the outbox: one of its own for each user of a browser, or the next one would send what another one has kept. */
export function outboxOf({name, outbox}) {
    const [, user] = SUBJECT.exec(name ?? "") ?? [];
    return {...(user && outbox.path === undefined && {name: `crewel.outbox ${user}`}), ...outbox};
}

/**
 * Returns the options of an open connection after another call with these: its functions are called from now on. Throws a TypeError
 * that names an option with another value.
 */
export function agreed(open, options) {
    const asked = completed(options);
    for (const option of Object.keys(given(options))) {
        if (option !== "url" && !isSame(open[option], asked[option])) {
            const as = open.name === undefined ? "" : ` as ${open.name}`;
            throw new TypeError(`the page has a connection to ${open.url}${as} with another ${option}: leave it out, or close() it before`);
        }
    }
    return {...open, ...given(options), url: open.url, retry: open.retry};
}

/** Whether two values are equal, with functions equal to one another. */
export function isSame(one, other) {
    if (one === other || typeof one !== "object" || typeof other !== "object" || one === null || other === null) {
        return one === other || (typeof one === "function" && typeof other === "function");
    }
    const names = new Set([...Object.keys(one), ...Object.keys(other)]);
    return [...names].every((name) => isSame(one[name], other[name]));
}

function given(options) {
    return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/**
 * What an operator does from the page, by the REST resources of the administration.
 *
 * The token is in the memory of this object and in the header of its requests, and nowhere else.
 */

const API = "/admin/api";
/** How long the server may take to answer, in milliseconds. It works on letters for five seconds at most. */
const PATIENCE = 10_000;
/** Letters that are asked for; the page shows no more. */
const LETTERS = 20;

/** Why something was not done, for people. */
export class Refusal extends Error {
    /** Whether the token is good for nothing. */
    isAboutToken;

    constructor(message, isAboutToken = false) {
        super(message);
        this.isAboutToken = isAboutToken;
    }
}

export class Operator {
    #token = null;
    #fetch;

    /** @param ask asks the server, as window.fetch does */
    constructor(ask = (...request) => fetch(...request)) {
        this.#fetch = ask;
    }

    get hasToken() {
        return this.#token !== null;
    }

    /** Takes the token if the server does. */
    async use(token) {
        if (!/^[\x21-\x7e]+$/.test(token)) {
            throw new Refusal("A token has ASCII characters only, and no spaces.", true);
        }
        await this.#ask("GET", "/sessions?count=1", undefined, token);
        this.#token = token;
    }

    forget() {
        this.#token = null;
    }

    /** Returns what is known of the session of this name, client/joe/1; null if there is none. */
    async session(name) {
        return this.#ask("GET", pathOf(name));
    }

    /** Lets messages go to the session again. */
    async activate(name) {
        await this.#ask("POST", `${pathOf(name)}/activate`);
    }

    /** Returns {letters, isAll}: the newest dead letters of these sessions, the newest first. */
    async letters(names) {
        const pages = await Promise.all(
            names.map((name) => this.#ask("GET", `/dead-letters?newestFirst=true&count=${LETTERS}&receiver=${encodeURIComponent(name)}`)),
        );
        return {letters: pages.flatMap((page) => page.letters), isAll: pages.every((page) => page.next === "")};
    }

    /** Sends a letter again, to its receiver or to all who hear its channel. */
    async redrive(deadId, toChannel) {
        const report = await this.#ask("POST", "/dead-letters/redrive", {ids: [deadId], toChannel});
        if (report.undone.length > 0) {
            throw new Refusal(`It was not sent: ${report.undone[0].message}.`);
        }
    }

    async discard(deadId) {
        await this.#ask("POST", "/dead-letters/discard", {ids: [deadId]});
    }

    /** Returns what the server answers, null for what is not there; throws Refusal. */
    async #ask(method, path, body = undefined, token = this.#token) {
        let response, answer;
        try {
            response = await this.#fetch(API + path, {
                method,
                headers: {Authorization: `Bearer ${token}`, ...(body === undefined ? {} : {"Content-Type": "application/json"})},
                body: body === undefined ? undefined : JSON.stringify(body),
                cache: "no-store",
                signal: AbortSignal.timeout(PATIENCE),
            });
            answer = await response.json();
        } catch (error) {
            throw new Refusal(
                response === undefined && error.name !== "TimeoutError" ? "The server cannot be reached." : "The server's answer cannot be read.",
            );
        }
        return answerOf(response, answer, method);
    }
}

function answerOf(response, answer, method) {
    if (response.ok) {
        return answer;
    }
    if (response.status === 404 && method === "GET") {
        return null;
    }
    if (response.status === 401) {
        throw new Refusal("The server does not accept this token.", true);
    }
    if (response.status === 403) {
        throw new Refusal(`This token does not allow that: ${answer.message}.`, true);
    }
    throw new Refusal(`The server replied ${answer.errorCode ?? response.status}: ${answer.message ?? "no reason given"}.`);
}

function pathOf(name) {
    const [, subject, number] = name.split("/");
    return `/sessions/${encodeURIComponent(subject)}/${encodeURIComponent(number)}`;
}

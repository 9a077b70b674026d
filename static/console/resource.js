/**
 * What requests to /admin/api are about: names are encoded here, and compared with what the answer names.
 */

import {Refused} from "./api.js";

/** Segments that `fetch` resolves before it sends a path, also if they are percent-encoded. */
const DOT_SEGMENTS = [".", ".."];
/** What stands in a path for a name that is in the query. */
const PLACEHOLDER = "_";

export class Resource {
    #route;
    #values;
    #named;

    /** `values` are those of the variables of the route, such as `/topics/{channel}`; `named` are fields of answers that name it. */
    constructor(route, values, named = {}) {
        this.#route = route;
        this.#values = values;
        this.#named = named;
    }

    /** What is below it, such as the messages of a session. */
    below(rest, {isNamed = true} = {}) {
        return new Resource(`${this.#route}/${rest}`, this.#values, isNamed ? this.#named : {});
    }

    /** The path and the part of the query that name it. Throws Refused for an id that no request can name. */
    get address() {
        const query = {};
        const path = this.#route.replace(/{(\w+)}/g, (_, variable) => {
            const value = this.#values[variable];
            const segments = variable === "channel" ? value.replace(/^\//, "").split("/") : [value];
            if (!segments.some((each) => DOT_SEGMENTS.includes(each))) {
                return segments.map(encodeURIComponent).join("/");
            }
            if (variable !== "channel" && variable !== "subject") {
                throw new Refused(404, "user.illegalArgument", `${value} is not an id`);
            }
            query[variable] = value;
            return PLACEHOLDER;
        });
        return {path, query};
    }

    /** Throws Refused if the answer is about something else. */
    check(answer) {
        for (const [field, name] of Object.entries(this.#named)) {
            if (answer[field] !== name) {
                throw new Refused(0, "", `the answer is about ${answer[field]} and not about ${name}: something on the way to the server has changed the path of the request`);
            }
        }
    }
}

/** A session, client/joe/1. */
export function sessionOf(name) {
    const [, subject = "", number = ""] = name.split("/");
    return new Resource("/sessions/{subject}/{number}", {subject, number}, {name});
}

/** A subject, client/joe. */
export function subjectOf(name) {
    return new Resource("/subjects/{subject}", {subject: name.split("/")[1]}, {name});
}

/** The topic of a channel; or its `history`, or what publishes to it. */
export function topicOf(channel, kind = "topics") {
    return new Resource(`/${kind}/{channel}`, {channel}, {channel});
}

/** The consumer groups of a pattern. */
export function groupOf(pattern) {
    return new Resource("/groups/{channel}", {channel: pattern}, {pattern});
}

export function jobOf(id) {
    return new Resource("/jobs/{job}", {job: id}, {id});
}

/** A dead letter. */
export function letterOf(id) {
    return new Resource("/dead-letters/{id}", {id}, {id});
}

/** A scheduled message, as long as it is one. */
export function scheduledOf(id) {
    return new Resource("/scheduled-messages/{scheduled}", {scheduled: id}, {id});
}

/** A message, by its own id or by that of its dead letter. */
export function messageOf(id) {
    return new Resource("/messages/{message}", {message: id});
}

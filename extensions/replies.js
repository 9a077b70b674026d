/** What a failed reply to a publish or a subscribe says. */

const SESSION = /^40[12]:|^403:token_expired:|:user\.security\.authentication\.expired$/;
const TEMPORARY = /^resource\.(temporary\.)?unavailable$|^resource\.noMoreSpace$/;
const CAP = "resource.exhaust";
const LONGEST_WAIT = 60_000; // for which an advice is followed, in ms

/** What the server says beside the `error` of a reply: {errorCode, message}, or nothing. */
function told(reply) {
    return reply.ext?.publish ?? reply.ext?.subscribe ?? {};
}

/**
 * Whether something was refused because the server does not know its session, or the token of the session has expired. The server
 * has not taken it, and the client is about to get another session, or to show another token.
 */
export function isOfSession({error = ""}) {
    return SESSION.test(error);
}

/** Whether a repeat may succeed: there was no reply, it was refused for its session or a rate, or the server lacks a resource. */
export function isTemporary(reply) {
    return !reply.error || isOfSession(reply) || TEMPORARY.test(codeOf(reply));
}

/** Whether a cap of the server is reached. Something must end first, and a message that waits for that can be sent again. */
export function isFull(reply) {
    return codeOf(reply) === CAP;
}

/** After how many milliseconds the server takes what it has refused for a rate or a cap; 0 if the reply does not say it. */
export function retryAfter(reply) {
    const {retryAfter: wait} = told(reply);
    return wait > 0 ? Math.min(wait, LONGEST_WAIT) : 0;
}

/** Why the server refused: its code beside the `error`, or else the last part of that; empty if there was no reply. */
export function codeOf(reply) {
    return told(reply).errorCode || (reply.error?.split(":").at(-1) ?? "");
}

/** The server refused what was sent, or it is unknown whether it has it: then `errorCode` is empty. */
export class ReplyError extends Error {
    constructor(channel, reply) {
        const {message} = told(reply);
        const lost = "the connection was lost, and it is unknown whether the server has it";
        super(`${channel}: ${message ?? reply.error ?? reply.failure?.exception?.message ?? lost}`);
        this.name = "ReplyError";
        this.errorCode = codeOf(reply);
        this.reply = reply;
    }
}

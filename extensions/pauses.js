/** The pauses between attempts that fail. */

/** How long to wait after so many failures in a row, in milliseconds: not all pages of a server at the same time. */
export function pause(failures, {minDelay, maxDelay}, chance = Math.random()) {
    const longest = Math.min(minDelay * 2 ** failures, maxDelay);
    return longest * (0.5 + chance / 2);
}

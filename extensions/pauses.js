/** How long to wait: the longest time of a timer, and the pauses between attempts that fail. */

/** In milliseconds: a browser ends a longer timer at once. */
export const LONGEST_MS = 2 ** 31 - 1;

/** How long to wait after so many failures in a row, in milliseconds: not all pages of a server at the same time. */
export function pause(failures, {minDelay, maxDelay}, chance = Math.random()) {
    const longest = Math.min(minDelay * 2 ** failures, maxDelay, LONGEST_MS);
    return longest * (0.5 + chance / 2);
}

/**
 * What a typed line means.
 */

/**
 * Returns {peers, text}: the names the line is meant for (none: everyone) and what to tell them.
 * `joe,sue::hello` goes to joe and sue, as in CometD's chat; else the chosen peer counts.
 */
export function parsePhrase(line, chosen) {
    const colons = line.indexOf("::");
    if (colons > 0) {
        const peers = line.slice(0, colons).split(",").map((name) => name.trim()).filter((name) => name !== "");
        if (peers.length > 0) {
            return {peers, text: line.slice(colons + 2).trim()};
        }
    }
    return {peers: chosen === "" ? [] : [chosen], text: line.trim()};
}

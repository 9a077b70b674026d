/**
 * Asks the server which transports it offers, when the chosen one got no answer that tells it.
 */

/** How long the question may take, in milliseconds. */
const PATIENCE = 5000;

/** Returns the connection types the server lists, or [] if it cannot be asked. */
export async function offeredTransports(url) {
    try {
        const [handshake] = await ask(url, {
            channel: "/meta/handshake",
            version: "1.0",
            supportedConnectionTypes: ["long-polling"],
        });
        if (handshake.successful) {
            // Only a question: no session is left behind.
            await ask(url, {channel: "/meta/disconnect", clientId: handshake.clientId});
        }
        return handshake.supportedConnectionTypes ?? [];
    } catch {
        return [];
    }
}

async function ask(url, message) {
    const response = await fetch(url, {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify([message]),
        signal: AbortSignal.timeout(PATIENCE),
    });
    return response.json();
}

import {Outbox, SessionExtension, UpdateExtension} from "@crewel/client";
import {AckExtension, CometD} from "cometd";

const ADDRESS: string = import.meta.env.VITE_CREWEL_URL ?? "http://127.0.0.1:8080/cometd";
const AGAIN_MS = 2000;

interface Callbacks {
    onStatus(text: string): void;
    onConnected(): void;
}

/** A client that acknowledges messages, resumes its session after a reload, and keeps publishes until the server has them. */
export function connect({onStatus, onConnected}: Callbacks): {cometd: CometD; outbox: Outbox; session: SessionExtension} {
    const cometd = new CometD();
    const session = new SessionExtension({}, {storage: window.sessionStorage});
    const outbox = new Outbox({onRefused: publish => onStatus(`refused: ${publish.message}`)});
    let again: number | undefined;
    cometd.configure({url: new URLSearchParams(location.search).get("server") ?? ADDRESS});
    cometd.unregisterTransport("callback-polling"); // Crewel does not offer it
    cometd.registerExtension("session", session);
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("update", new UpdateExtension());
    cometd.registerExtension("outbox", outbox);
    cometd.addListener("/meta/handshake", reply => {
        if (reply.successful) {
            onStatus("connected");
            onConnected();
            return;
        }
        onStatus(`not connected: ${session.refusal?.message || reply.error || "no server, or http.allowed_origins lacks this page"}`);
        if (reply.failure) {
            // Without a server, the client stops when it has tried each transport: begin again.
            window.clearTimeout(again);
            again = window.setTimeout(() => cometd.isDisconnected() && cometd.handshake(), AGAIN_MS);
        }
    });
    cometd.addListener("/meta/connect", reply => onStatus(reply.successful ? "connected" : "connecting"));
    return {cometd, outbox, session};
}

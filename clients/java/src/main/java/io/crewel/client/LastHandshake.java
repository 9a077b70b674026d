package io.crewel.client;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;

/** How the last handshake of a client was answered: what fails without a session fails for that reason. */
final class LastHandshake implements ClientSession.Extension {
    private volatile Message reply;

    private LastHandshake() { }

    /** That of this client, which has one. */
    static LastHandshake of(BayeuxClient client) {
        synchronized (client) {
            for (ClientSession.Extension extension : client.getExtensions()) {
                if (extension instanceof LastHandshake last) {
                    return last;
                }
            }
            LastHandshake last = new LastHandshake();
            client.addExtension(last);
            return last;
        }
    }

    @Override
    public boolean rcvMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
            reply = message;
        }
        return true;
    }

    /** Whether the server has refused it. */
    boolean isRefused() {
        Message last = reply;
        return last != null && !last.isSuccessful() && !last.containsKey("failure");
    }

    /** The code of its refusal; empty if it was not refused, or without a code. */
    String errorCode() {
        return isRefused() ? Refusals.codeOf(reply) : "";
    }

    /** Why there is no session, as far as is known. */
    String refusal() {
        Message last = reply;
        return last == null || last.isSuccessful() ? "the client is disconnected"
            : "the handshake was not successful: " + PublishException.reason(last);
    }
}

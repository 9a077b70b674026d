package io.crewel.client;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;

import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.TransportListener;

/**
 * The refusals of one message. CometD sends in one request what is published in a batch or during a handshake: so only the
 * refusal of a request that had only this message is for good.
 */
final class Refusals {
    private static final int MOST = 10;

    private final Requests requests;
    private int attempts;
    private int number;

    Refusals(BayeuxClient client) {
        this.requests = Requests.of(client);
    }

    /** An attempt begins. */
    synchronized void begin() {
        attempts++;
    }

    synchronized int attempts() {
        return attempts;
    }

    /** Takes a reply that is not successful into account; why the server never takes the message, or null. */
    synchronized Failure add(Message reply, Object data) {
        Failure refusal = PublishException.neverTaken(reply, data);
        if (refusal == null) {
            return null;
        }
        number++;
        Map<String, Object> failure = Ext.fields(reply.get("failure"));
        boolean isBySize = failure.containsKey("websocketCode"); // by its own size, whatever was sent with it
        return isBySize || requests.hadOneMessage(failure.get("exception")) ? refusal : null;
    }

    /** Whether this reply refuses the request, so that the server has not processed the message. */
    static boolean isOne(Message reply) {
        return PublishException.neverTaken(reply, null) != null;
    }

    /** Whether a message without a deadline may be sent once more. */
    synchronized boolean areFew() {
        return number < MOST;
    }

    /** The failed requests of a client that had one message. */
    private static final class Requests implements TransportListener, ClientSession.Extension {
        private final Set<Throwable> single = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

        static Requests of(BayeuxClient client) {
            synchronized (client) {
                for (ClientSession.Extension extension : client.getExtensions()) {
                    if (extension instanceof Requests requests) {
                        return requests;
                    }
                }
                Requests requests = new Requests();
                client.addExtension(requests); // where the next one finds it: a client does not list its listeners
                client.addTransportListener(requests);
                return requests;
            }
        }

        @Override
        public void onFailure(Throwable failure, List<? extends Message> messages) {
            if (messages.size() == 1) {
                single.add(failure);
            }
        }

        boolean hadOneMessage(Object failure) {
            return single.contains(failure);
        }
    }
}

package io.crewel.client;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.TransportListener;

/**
 * The refusals of one message, and which replies are for good, for all parts of the client. CometD sends in one request what is
 * published in a batch or during a handshake: so only the refusal of a request that had only this message is for good.
 */
final class Refusals {
    private static final int MOST = 10;
    private static final List<String> PASSING = List.of("401:", "402:", "403:token_expired:", "503:");
    private static final String RATE = "resource.temporary.unavailable"; // a rate of the server is exceeded
    private static final String CAP = "resource.exhaust"; // a cap of the server is reached: something must end first
    private static final Pattern LIMIT = Pattern.compile("bayeux\\.max_message_bytes is ([0-9]{1,18})");
    private static final Pattern OWN_LIMIT = Pattern.compile("Max send Bayeux message size ([0-9]{1,18}) exceeded");
    private static final long LONGEST_MS = 60_000; // for which an advice is followed

    private final BayeuxClient client;
    private final Requests requests;
    private int attempts;
    private int number;

    Refusals(BayeuxClient client) {
        this.client = client;
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
    synchronized Failure add(Message reply) {
        Failure large = tooLarge(reply);
        if (large != null) {
            return large;
        }
        Failure refusal = PublishException.neverTaken(reply);
        number += isOne(reply) ? 1 : 0;
        boolean wasAlone = requests.hadOneMessage(Ext.fields(reply.get("failure")).get("exception"));
        return wasAlone ? refusal : null;
    }

    /**
     * Why this message is too large, whatever was sent with it; null if it is not. A WebSocket that is closed, or a message that the
     * client itself does not send, fails all messages that are on their way, so that the size of each counts.
     */
    private Failure tooLarge(Message reply) {
        Map<String, Object> said = new HashMap<>(Ext.fields(reply.get("failure")));
        Object sent = said.remove("message");
        Matcher limit = LIMIT.matcher(said.toString()); // transports differ in where they put the reason of the closing
        if (sent != null && limit.find() && bytes(List.of(sent)) > Long.parseLong(limit.group(1))) {
            return PublishException.TOO_LARGE;
        }
        Matcher own = OWN_LIMIT.matcher(said.toString());
        return sent != null && own.find() && Json.written(client, sent).length() > Long.parseLong(own.group(1))
            ? new Failure("user.maxSizeExceed", own.group() + ": an option of the client, maxSendBayeuxMessageSize") : null;
    }

    private int bytes(Object value) {
        return Json.written(client, value).getBytes(StandardCharsets.UTF_8).length;
    }

    /** Whether this reply refuses the request, so that the server has not processed the message. */
    static boolean isOne(Message reply) {
        boolean isUnsent = OWN_LIMIT.matcher(String.valueOf(Ext.fields(reply.get("failure")).get("exception"))).find();
        return PublishException.neverTaken(reply) != null || isUnsent && !PublishException.isOfSocket(reply);
    }

    /**
     * Whether a later attempt may succeed: the server was not reached, did not know the session, or could not store the
     * message, the token of the session had expired, or a rate was exceeded.
     */
    static boolean isPassing(Message reply) {
        String error = reply.get(Message.ERROR_FIELD) instanceof String text ? text : "";
        return reply.containsKey("failure") || PASSING.stream().anyMatch(error::startsWith) || isForRate(reply);
    }

    /** Whether the server has not taken a message because a rate was exceeded. */
    static boolean isForRate(Message reply) {
        return RATE.equals(codeOf(reply));
    }

    /** Whether a cap of the server is reached. A message that waits for room can be sent again. */
    static boolean isForCap(Message reply) {
        return CAP.equals(codeOf(reply));
    }

    /** After how many milliseconds the server takes what it has refused for a rate or a cap; 0 if the reply does not say it. */
    static long retryAfter(Message reply) {
        return Math.max(0, Math.min(Ext.whole(Ext.part(reply, "publish").get("retryAfter"), 0), LONGEST_MS));
    }

    /** The dotted code of an unsuccessful reply, beside its error or at the end of that; empty if it has none. */
    static String codeOf(Message reply) {
        for (String part : List.of("publish", "session", "subscribe")) {
            String code = Ext.text(Ext.part(reply, part).get("errorCode"));
            if (code != null) {
                return code;
            }
        }
        String error = reply.get(Message.ERROR_FIELD) instanceof String text ? text : "";
        String last = error.substring(error.lastIndexOf(':') + 1);
        return last.contains(".") && !last.contains(" ") ? last : "";
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

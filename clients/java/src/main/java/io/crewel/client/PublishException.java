package io.crewel.client;

import java.io.Serial;
import java.util.Map;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;

/** A publish was refused, or it is unknown whether the server accepted it. */
public class PublishException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;
    private static final int UNREADABLE = 400;
    private static final int REFUSED_FOR_SIZE = 413;

    /** Why the server never takes a message that is too large. */
    static final Failure TOO_LARGE =
        new Failure("user.maxSizeExceed", "the message is larger than bayeux.max_message_bytes of the server");

    /** The dotted code; empty if the server gave none. */
    private final String errorCode;

    /** Whether the server refused the message for good. */
    private final boolean isRefused;

    PublishException(String channel, String errorCode, String reason, boolean isRefused) {
        super(channel + ": " + reason);
        this.errorCode = errorCode;
        this.isRefused = isRefused;
    }

    /** The exception for an unsuccessful reply. */
    static PublishException of(String channel, Message reply, boolean isRefused) {
        Failure failure = failure(reply);
        return new PublishException(channel, failure.errorCode(), failure.message(), isRefused);
    }

    /** What an unsuccessful reply says: its code, if it has one, and words for people. */
    static Failure failure(Message reply) {
        return new Failure(Refusals.codeOf(reply), reason(reply));
    }

    /**
     * Returns why the server refused it.
     *
     * @return the dotted code; empty if it gave none
     */
    public String errorCode() {
        return errorCode;
    }

    /**
     * Returns whether the server refused the message for good. Otherwise it may have accepted it: publish it again with the
     * same key.
     *
     * @return whether it is refused
     */
    public boolean isRefused() {
        return isRefused;
    }

    /** Why a reply is not successful, in words. The client makes some replies itself. */
    static String reason(Message reply) {
        Map<String, Object> told = Ext.part(reply, Channel.META_HANDSHAKE.equals(reply.getChannel()) ? "session" : "publish");
        Object text = told.get("message");
        Object error = reply.get(Message.ERROR_FIELD);
        if (error != null) {
            return text == null ? error.toString() : error + " (" + text + ")";
        }
        Failure refusal = neverTaken(reply);
        if (refusal != null) {
            return refusal.message();
        }
        Object exception = Ext.fields(reply.get("failure")).get("exception");
        boolean isSaid = exception instanceof Throwable thrown && thrown.getMessage() != null
            && !"null".equals(thrown.getMessage());
        return "the connection was lost" + (isSaid ? ": " + exception : "");
    }

    /**
     * Why the server never takes the message, if it was alone in its request; null if that does not follow from the reply. With
     * a WebSocket, a status is that of its opening.
     */
    static Failure neverTaken(Message reply) {
        Map<String, Object> failure = Ext.fields(reply.get("failure"));
        long status = isOfSocket(reply) ? 0 : Ext.whole(failure.get("httpCode"), 0);
        if (status == REFUSED_FOR_SIZE) {
            return TOO_LARGE;
        }
        return status == UNREADABLE ? new Failure(Publisher.ILLEGAL, "the server cannot read the message (400), which probably "
            + "is nested deeper than bayeux.max_depth") : null;
    }

    /** Whether a WebSocket has failed, and all messages that were on their way with it. */
    static boolean isOfSocket(Message reply) {
        return "websocket".equals(Ext.fields(reply.get("failure")).get(Message.CONNECTION_TYPE_FIELD));
    }
}

package io.crewel.client;

import java.io.Serial;

import org.cometd.bayeux.Message;

/** A publish was refused, or it is unknown whether the server accepted it. */
public class PublishException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    /** The dotted code; empty if the server gave none. */
    private final String errorCode;

    /** Whether the server refused the message for good. */
    private final boolean isRefused;

    PublishException(String channel, Message reply, boolean isRefused) {
        super(channel + ": " + reason(reply));
        String code = Ext.text(Ext.part(reply, "publish").get("errorCode"));
        this.errorCode = code == null ? "" : code;
        this.isRefused = isRefused;
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
        Object text = Ext.part(reply, "publish").get("message");
        Object error = reply.get(Message.ERROR_FIELD);
        if (error != null) {
            return text == null ? error.toString() : error + " (" + text + ")";
        }
        Object exception = Ext.fields(reply.get("failure")).get("exception");
        return "the connection was lost" + (exception == null ? "" : ": " + exception);
    }
}

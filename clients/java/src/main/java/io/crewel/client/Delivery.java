package io.crewel.client;

import java.time.Duration;
import java.util.Map;

import org.cometd.bayeux.Message;

/** A message as a listener gets it, with its origin and its history: xmlBlaster's UpdateKey, content and UpdateQos. */
public final class Delivery {
    /** The priority of a message of which nothing else is said. */
    public static final int NORMAL_PRIORITY = 5;

    private static final String ADDRESSED = "__subId:PtP";

    private final Message message;
    private final Map<String, Object> update;
    private final Runnable working;

    Delivery(Message message, Runnable working) {
        this.message = message;
        this.update = Ext.part(message, "update");
        this.working = working;
    }

    /**
     * Returns the message as CometD's client has it.
     *
     * @return the message
     */
    public Message message() {
        return message;
    }

    /**
     * Returns the channel to which the message was published.
     *
     * @return the channel
     */
    public String channel() {
        return message.getChannel();
    }

    /**
     * Returns the content of the message, as the JSON library of the client has read it.
     *
     * @return a map, list, text, number or boolean; or null
     */
    public Object data() {
        return message.getData();
    }

    /**
     * Returns the content of a message that is a JSON object.
     *
     * @return the fields
     * @throws UpdateException if the content is anything else: uncaught, it rejects the message
     */
    public Map<String, Object> dataAsMap() {
        if (!(data() instanceof Map)) {
            throw UpdateException.reject("the data is not a JSON object");
        }
        return message.getDataAsMap();
    }

    /**
     * Returns the id, which stays the same if the message is delivered again.
     *
     * @return the id; null for a message that needs no status
     */
    public String id() {
        return Ext.text(update.get("id"));
    }

    /**
     * Returns the public name of the session that published the message.
     *
     * @return the name, such as {@code client/joe/1}; null if the server does not say it
     */
    public String sender() {
        return Ext.text(update.get("sender"));
    }

    /**
     * Returns the channel or wildcard that the message was delivered for.
     *
     * @return the subscription
     */
    public String subscription() {
        String given = Ext.text(update.get("subscription"));
        return given == null ? channel() : given;
    }

    /**
     * Returns whether the message was addressed to this session or to its subject.
     *
     * @return whether it is a point-to-point message
     */
    public boolean isAddressed() {
        return ADDRESSED.equals(subscription());
    }

    /**
     * Returns whether this is no message but the notice that its topic was erased.
     *
     * @return whether the topic is gone
     */
    public boolean isErased() {
        return "ERASED".equals(update.get("state"));
    }

    /**
     * Returns the priority: 0 to 9, and higher ones come first.
     *
     * @return the priority
     */
    public int priority() {
        return (int) Ext.whole(update.get("priority"), NORMAL_PRIORITY);
    }

    /**
     * Returns how often the message may have been sent before.
     *
     * @return 0 for a message that comes for the first time
     */
    public int redeliver() {
        return (int) Ext.whole(update.get("redeliver"), 0);
    }

    /**
     * Returns whether the message was stored before its publisher had the reply.
     *
     * @return whether it is persistent
     */
    public boolean isPersistent() {
        return Boolean.TRUE.equals(update.get("persistent"));
    }

    /**
     * Returns whether the message is of a history, and old.
     *
     * @return whether it is
     */
    public boolean isInitial() {
        return Boolean.TRUE.equals(update.get("initial"));
    }

    /**
     * Returns when the server accepted the message: unique among the messages of a server.
     *
     * @return nanoseconds since 1970; 0 if the server does not say it
     */
    public long rcvTimestamp() {
        String digits = Ext.text(update.get("rcvTimestamp"));
        return digits != null && digits.matches("[0-9]{1,18}|[1-8][0-9]{18}") ? Long.parseLong(digits) : 0;
    }

    /**
     * Returns how much of the message's life was left when it was sent.
     *
     * @return the time; null for a message without a limit
     */
    public Duration remainingLife() {
        return update.get("remainingLife") instanceof Number life ? Duration.ofMillis(life.longValue()) : null;
    }

    /**
     * Returns the properties that the publisher added, and those of the server.
     *
     * @return the properties
     */
    public Map<String, Object> clientProperties() {
        return Ext.fields(update.get("clientProperties"));
    }

    /**
     * Returns the channel for the answer, if the message is a request.
     *
     * @return the channel, or null
     */
    public String replyTo() {
        return RequestExtension.replyChannel(message);
    }

    /**
     * Reports that the message is still being processed: {@code ackWait}, if the session has one, starts again.
     */
    public void working() {
        working.run();
    }

    @Override
    public String toString() {
        return channel() + " " + id();
    }
}

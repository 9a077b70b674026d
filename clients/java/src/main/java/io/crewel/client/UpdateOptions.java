package io.crewel.client;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/** What an {@link UpdateExtension} asks of the server, and how it calls listeners. */
public final class UpdateOptions {
    /** Up to 5 retries after growing pauses; the absence of the client is no failure. */
    private static final Map<String, Object> RETRYING;

    static {
        Map<String, Object> usual = new LinkedHashMap<>();
        usual.put("retries", 5);
        usual.put("delay", 1000);
        usual.put("factor", 2);
        usual.put("maxDelay", 60000);
        usual.put("absence", false);
        RETRYING = usual;
    }

    final Map<String, Object> asked = new LinkedHashMap<>();
    private final Map<String, Object> dispatcher = new LinkedHashMap<>();
    Executor executor = new Serial();
    int remembered = 10_000;
    Duration unclaimed;
    Consumer<Map<String, Object>> onRejected = status -> { };
    Consumer<EndedSubscription> onEnded = ended -> { };

    /** Makes options with the default values. */
    public UpdateOptions() { }

    /**
     * Sets how many messages may be open at this client, sent and without a status. With 1, messages come one at a time.
     *
     * @param number the limit; 0: no limit, the default
     * @return this
     */
    public UpdateOptions maxOpen(int number) {
        return field("maxOpen", number);
    }

    /**
     * Sets how long a message may stay open before the server sends it again.
     *
     * @param limit the time; by default there is no limit
     * @return this
     */
    public UpdateOptions ackWait(Duration limit) {
        return field("ackWait", limit.toMillis());
    }

    /**
     * Sets how many {@code communication.*} failures in a row the session survives.
     *
     * @param number the number; -1: no limit. 5 by default
     * @return this
     */
    public UpdateOptions retries(int number) {
        dispatcher.put("retries", number);
        return this;
    }

    /**
     * Sets the pause after a {@code communication.*} failure, which then does not grow.
     *
     * @param pause the pause; by default, it grows from a second to a minute
     * @return this
     */
    public UpdateOptions delay(Duration pause) {
        dispatcher.put("delay", pause.toMillis());
        return this;
    }

    /**
     * Sets a field of {@code ext.session}, such as {@code burst}.
     *
     * @param name the field
     * @param value its JSON value
     * @return this
     */
    public UpdateOptions field(String name, Object value) {
        asked.put(Objects.requireNonNull(name), value);
        return this;
    }

    /**
     * Sets what calls the listeners. By default, a thread of the extension calls all of them one after another, so that a
     * listener may wait without stopping the client's own messages.
     *
     * @param threads a pool for listeners that may run at once
     * @return this
     */
    public UpdateOptions executor(Executor threads) {
        this.executor = Objects.requireNonNull(threads);
        return this;
    }

    /**
     * Sets how many ids of acknowledged messages are kept, to drop duplicates; also the maximum number of messages without a
     * listener.
     *
     * @param number the number, 10000 by default
     * @return this
     */
    public UpdateOptions remembered(int number) {
        this.remembered = number;
        return this;
    }

    /**
     * Sets the time after which a message that no listener takes becomes a dead letter.
     *
     * @param limit the time; by default, such a message stays open
     * @return this
     */
    public UpdateOptions unclaimed(Duration limit) {
        if (limit.isNegative()) {
            throw new IllegalArgumentException("a time is not negative: " + limit);
        }
        this.unclaimed = limit;
        return this;
    }

    /**
     * Sets what is called with each status that the server did not accept, because the message is not open any more.
     *
     * @param callback called with the fields of the status, and its {@code reason}
     * @return this
     */
    public UpdateOptions onRejected(Consumer<Map<String, Object>> callback) {
        this.onRejected = Objects.requireNonNull(callback);
        return this;
    }

    /**
     * Sets what is called when the server has ended a subscription.
     *
     * @param callback called after the earlier messages of the subscription
     * @return this
     */
    public UpdateOptions onEnded(Consumer<EndedSubscription> callback) {
        this.onEnded = Objects.requireNonNull(callback);
        return this;
    }

    /** The fields of {@code ext.session}, beside those that the message has already. */
    Map<String, Object> session(Map<String, Object> given) {
        Map<String, Object> session = new LinkedHashMap<>(given);
        session.putAll(asked);
        session.put("update", true);
        session.put("settle", "message");
        Map<String, Object> own = new LinkedHashMap<>(Ext.fields(session.get("dispatcher")));
        own.putAll(dispatcher);
        session.put("dispatcher", retrying(own));
        return session;
    }

    /** The {@code dispatcher} to ask for. A delay that the application sets does not grow. */
    private static Map<String, Object> retrying(Map<String, Object> own) {
        Map<String, Object> made = new LinkedHashMap<>(RETRYING);
        if (own.containsKey("delay")) {
            made.put("factor", 1);
            made.remove("maxDelay");
        }
        made.putAll(own);
        return made;
    }
}

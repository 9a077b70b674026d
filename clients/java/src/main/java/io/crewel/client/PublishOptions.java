package io.crewel.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** How one message is to be handled: the fields of {@code ext.publish}, xmlBlaster's PublishQos. */
public final class PublishOptions {
    private final Map<String, Object> fields = new LinkedHashMap<>();
    private final List<Map<String, Object>> destinations = new ArrayList<>();

    /** Makes options for a message that is not stored. */
    public PublishOptions() { }

    /**
     * Makes options for a message that the server stores before it replies.
     *
     * @return new options
     */
    public static PublishOptions persistent() {
        return new PublishOptions().field("persistent", true);
    }

    /**
     * Sets the idempotency key. A repeat with the same key, channel and subject within two minutes delivers nothing.
     *
     * @param key up to 256 characters; without one, {@link Publisher} chooses a random one for a persistent message
     * @return this
     */
    public PublishOptions key(String key) {
        return field("key", Objects.requireNonNull(key));
    }

    /**
     * Sets the priority.
     *
     * @param priority 0 to 9; higher ones come first
     * @return this
     */
    public PublishOptions priority(int priority) {
        return field("priority", priority);
    }

    /**
     * Sets how long the message lives.
     *
     * @param limit the time; by default there is no limit
     * @return this
     */
    public PublishOptions lifeTime(Duration limit) {
        return field("lifeTime", limit.toMillis());
    }

    /**
     * Adds a receiver: the message is addressed to it.
     *
     * @param name a session, {@code client/joe/1}, or a subject, {@code client/joe}
     * @return this
     */
    public PublishOptions to(String name) {
        return to(name, false);
    }

    /**
     * Adds a receiver: the message is addressed to it.
     *
     * @param name a session or a subject
     * @param forceQueuing whether the message waits while the subject has no session
     * @return this
     */
    public PublishOptions to(String name, boolean forceQueuing) {
        destinations.add(Map.of("to", name, "forceQueuing", forceQueuing));
        return field("destination", List.copyOf(destinations));
    }

    /**
     * Sets JSON values that are delivered with the message.
     *
     * @param properties the values
     * @return this
     */
    public PublishOptions clientProperties(Map<String, ?> properties) {
        return field("clientProperties", Map.copyOf(properties));
    }

    /**
     * Sets any other field of {@code ext.publish}.
     *
     * @param name such as {@code history}
     * @param value its JSON value
     * @return this
     */
    public PublishOptions field(String name, Object value) {
        fields.put(Objects.requireNonNull(name), value);
        return this;
    }

    /** A copy of the fields, so that later changes have no effect. */
    Map<String, Object> copy() {
        return new LinkedHashMap<>(fields);
    }
}

package io.crewel.client;

import java.util.Objects;
import java.util.function.Consumer;

/** How much an {@link Outbox} takes, and what it calls. */
public final class OutboxOptions {
    int maxMessages = 10_000;
    long maxBytes = 64 * 1024 * 1024;
    Consumer<RefusedPublish> onRefused = refused -> { };

    /** Makes the usual options. */
    public OutboxOptions() { }

    /**
     * Sets how many publishes wait at most.
     *
     * @param most the number; 10,000 by default
     * @return this
     */
    public OutboxOptions maxMessages(int most) {
        this.maxMessages = positive("maxMessages", most);
        return this;
    }

    /**
     * Sets how many bytes of JSON wait at most.
     *
     * @param most the number; 64 MiB by default
     * @return this
     */
    public OutboxOptions maxBytes(int most) {
        this.maxBytes = positive("maxBytes", most);
        return this;
    }

    /**
     * Sets what is called with each publish that the server refuses for good.
     *
     * @param callback called in a thread of the outbox
     * @return this
     */
    public OutboxOptions onRefused(Consumer<RefusedPublish> callback) {
        this.onRefused = Objects.requireNonNull(callback);
        return this;
    }

    private static int positive(String name, int value) {
        if (value < 1) {
            throw new IllegalArgumentException(name + " is 1 or more, not " + value);
        }
        return value;
    }
}

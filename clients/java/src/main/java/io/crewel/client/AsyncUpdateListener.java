package io.crewel.client;

import java.util.concurrent.CompletionStage;

/** Processes messages, and decides later. */
@FunctionalInterface
public interface AsyncUpdateListener {
    /**
     * Begins to process a message.
     *
     * @param delivery the message
     * @return what decides: when it completes, the message is acknowledged; if it fails, the message is rejected as by an
     *     exception. Null acknowledges at once
     * @throws Exception as in {@link UpdateListener#update}
     */
    CompletionStage<?> update(Delivery delivery) throws Exception;
}

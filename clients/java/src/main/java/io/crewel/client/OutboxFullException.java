package io.crewel.client;

import java.io.Serial;

/** The outbox is full: the publish is not in it. */
public class OutboxFullException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    OutboxFullException(String message) {
        super(message);
    }
}

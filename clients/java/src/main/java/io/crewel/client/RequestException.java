package io.crewel.client;

import java.io.Serial;

/** A request was refused, or it is unknown whether the server accepted it. */
public class RequestException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    RequestException(String message) {
        super(message);
    }
}

package io.crewel.client;

import java.io.Serial;
import java.time.Duration;

/** No answer came in time. The responder may still be working on the request. */
public class AnswerTimeoutException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    AnswerTimeoutException(String channel, Duration limit) {
        super(channel + ": no answer within " + limit.toMillis() + " ms");
    }
}

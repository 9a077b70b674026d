package io.crewel.client;

import java.io.Serial;

/**
 * What a listener throws to report that it did not process a message. Its code decides what the server does with the message,
 * as the codes of xmlBlaster's {@code XmlBlasterException} do.
 *
 * <p>Any other exception is reported as {@code user.update.internalError}, and makes a dead letter too.
 */
public class UpdateException extends RuntimeException {
    /** The code of an exception that brings none: the message becomes a dead letter. */
    public static final String INTERNAL_ERROR = "user.update.internalError";

    /** The message is wrong: it becomes a dead letter. */
    public static final String ERROR = "user.update.error";

    /** The message becomes a dead letter, which an operator looks at later. */
    public static final String DEAD_MESSAGE = "user.update.deadMessage";

    /** The receiver can process nothing until an operator acts: the message stays, and no others come. */
    public static final String HOLDBACK = "user.update.holdback";

    /** The receiver can process nothing now: the server sends the message again later. */
    public static final String NO_CONNECTION = "communication.noConnection";

    @Serial
    private static final long serialVersionUID = 1;

    /** The dotted code. */
    private final String errorCode;

    /**
     * Makes an exception with any code.
     *
     * @param errorCode a code that begins with {@code user.} or {@code communication.}; the server treats any other as
     *     {@link #INTERNAL_ERROR}
     * @param message words for people
     */
    public UpdateException(String errorCode, String message) {
        super(message);
        this.errorCode = errorCode;
    }

    /**
     * Makes an exception with any code and a cause.
     *
     * @param errorCode a code that begins with {@code user.} or {@code communication.}
     * @param message words for people
     * @param cause why the message could not be processed
     */
    public UpdateException(String errorCode, String message, Throwable cause) {
        super(message, cause);
        this.errorCode = errorCode;
    }

    /**
     * Returns the code.
     *
     * @return the dotted code
     */
    public String errorCode() {
        return errorCode;
    }

    /**
     * The message is wrong: it becomes a dead letter, and the next one comes.
     *
     * @param message words for people
     * @return the exception to throw
     */
    public static UpdateException reject(String message) {
        return new UpdateException(ERROR, message);
    }

    /**
     * An operator must act first: the message stays, and the session is on hold until an operator activates it.
     *
     * @param message words for people
     * @return the exception to throw
     */
    public static UpdateException hold(String message) {
        return new UpdateException(HOLDBACK, message);
    }

    /**
     * Nothing can be processed now, for example because a database is down: the server sends the message again after the {@code
     * delay} of the session, at most {@code retries} times, and sends nothing meanwhile.
     *
     * @param message words for people
     * @return the exception to throw
     */
    public static UpdateException retry(String message) {
        return new UpdateException(NO_CONNECTION, message);
    }

    /**
     * The message becomes a dead letter, which an operator looks at later.
     *
     * @param message words for people
     * @return the exception to throw
     */
    public static UpdateException deadLetter(String message) {
        return new UpdateException(DEAD_MESSAGE, message);
    }
}

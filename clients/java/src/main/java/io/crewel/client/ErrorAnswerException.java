package io.crewel.client;

import java.io.Serial;

/** An answer that reports a failure of the responder. A responder throws it to report one. */
public class ErrorAnswerException extends RuntimeException {
    @Serial
    private static final long serialVersionUID = 1;

    /** The dotted code. */
    private final String errorCode;

    private final transient Object data;

    /**
     * Makes an answer without data.
     *
     * @param errorCode a dotted code
     * @param message words for people
     */
    public ErrorAnswerException(String errorCode, String message) {
        this(errorCode, message, null);
    }

    /**
     * Makes an answer.
     *
     * @param errorCode a dotted code
     * @param message words for people
     * @param data more about the failure
     */
    public ErrorAnswerException(String errorCode, String message, Object data) {
        super(message);
        this.errorCode = errorCode;
        this.data = data;
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
     * Returns what the responder tells about the failure.
     *
     * @return the data, or null
     */
    public Object data() {
        return data;
    }
}

package io.crewel.client;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Why a message was not processed: a dotted code, and words for people. */
record Failure(String errorCode, String message) {
    private static final int LONGEST_CODE = 200;
    private static final int LONGEST_TEXT = 500;

    /** The failure that an exception reports: that of an {@link UpdateException}, or {@code user.update.internalError}. */
    static Failure of(Throwable reason) {
        Throwable cause = cause(reason);
        String text = cause.getMessage() == null ? "" : cause.getMessage();
        boolean isCoded = cause instanceof UpdateException update && Ext.text(update.errorCode()) != null;
        return new Failure(isCoded ? ((UpdateException) cause).errorCode() : UpdateException.INTERNAL_ERROR, text);
    }

    /** What went wrong, without the wrapping of a future. */
    static Throwable cause(Throwable reason) {
        Throwable cause = reason;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause;
    }

    /** The status that reports it. The server replaces codes that it does not accept by {@code user.update.internalError}. */
    Map<String, Object> status(String id) {
        Map<String, Object> status = new LinkedHashMap<>();
        status.put("id", id);
        status.put("errorCode", cut(errorCode, LONGEST_CODE));
        status.put("message", cut(message, LONGEST_TEXT));
        return status;
    }

    /** At most so many characters, and no half of a pair of them: the server would refuse the whole request. */
    static String cut(String text, int most) {
        StringBuilder cut = new StringBuilder(text.length() <= most ? text : text.substring(0, most));
        for (int at = 0; at < cut.length(); at++) {
            if (at + 1 < cut.length() && Character.isSurrogatePair(cut.charAt(at), cut.charAt(at + 1))) {
                at++;
            } else if (Character.isSurrogate(cut.charAt(at))) {
                cut.setCharAt(at, '\uFFFD');
            }
        }
        return cut.toString();
    }
}

package io.crewel.client;

import java.time.Duration;

/**
 * Why there is no session.
 *
 * @param errorCode the dotted code; empty if the server gave none
 * @param message words for people
 * @param retryAfter when the name will be free, if its client is gone and does not come back; else null
 * @param isFinal whether the client does not try again
 */
public record Refusal(String errorCode, String message, Duration retryAfter, boolean isFinal) {
    /** Another client has the session. */
    public static final String IDENTICAL_CLIENT = "user.configuration.identicalClient";
    /** The code of refusals for the token, with those below it. */
    static final String SECURITY = "user.security";
    /** The token was valid once. */
    static final String EXPIRED = "user.security.authentication.expired";
}

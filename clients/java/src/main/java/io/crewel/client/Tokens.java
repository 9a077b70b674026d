package io.crewel.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeoutException;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The tokens of one client. A function of the application is asked for the next one a little before the last one expires, in a
 * thread of its own, while the session continues with the last one; and when the server has refused that.
 */
final class Tokens {
    private static final Logger LOG = LoggerFactory.getLogger(SessionExtension.class);
    private static final long NEVER = Long.MAX_VALUE;
    private static final long EARLY_MS = 60_000; // before it expires, at most; a quarter of a short life
    private static final long PAUSE_MS = 1000; // between two questions, at least
    private static final long LIMIT_MS = 10_000; // for which the function is waited for
    private static final long WAIT_MS = 1000; // for which a connect is held while the function is asked
    private static final Pattern EXPIRY = Pattern.compile("\"exp\"\\s*:\\s*([0-9]{1,12})");

    private final Supplier<String> source;
    private final LongSupplier clock;
    private final long limitMs;
    private String token;
    private boolean isKnown; // a token that the server has not refused
    private boolean isFresh; // the function has returned it for the last handshake
    private boolean isRenewed;
    private boolean hasFailed; // the function, when it was last asked for the token after one that holds
    private long expiry = NEVER;
    private long due = NEVER;
    private CompletableFuture<String> asking;

    Tokens(Supplier<String> source) {
        this(source, System::currentTimeMillis, LIMIT_MS);
    }

    /** @param clock milliseconds since 1970 */
    Tokens(Supplier<String> source, LongSupplier clock, long limitMs) {
        this.source = source;
        this.clock = clock;
        this.limitMs = limitMs;
    }

    /** When a JSON Web Token expires, in milliseconds since 1970, as it says itself: a hint, for only the server verifies it. */
    static long expiry(String token) {
        String[] parts = token == null ? new String[0] : token.split("\\.", -1);
        if (parts.length != 3) {
            return NEVER;
        }
        try {
            Matcher said = EXPIRY.matcher(new String(Base64.getUrlDecoder().decode(parts[1]), StandardCharsets.UTF_8));
            return said.find() ? Duration.ofSeconds(Long.parseLong(said.group(1))).toMillis() : NEVER;
        } catch (IllegalArgumentException noToken) {
            return NEVER;
        }
    }

    /** The token of a handshake: the last one while that holds. Fails as the function does, if there is no such token. */
    synchronized CompletableFuture<String> take() {
        isFresh = false;
        if (isKnown && expiry != NEVER && clock.getAsLong() < expiry) {
            isRenewed = false;
            return CompletableFuture.completedFuture(token);
        }
        return ask().handle((given, failure) -> {
            synchronized (this) {
                if (failure != null && !(isKnown && clock.getAsLong() < expiry)) {
                    throw new CompletionException(failure);
                }
                isFresh = failure == null;
                isRenewed = false;
                return token;
            }
        });
    }

    /** The server does not take the token. Whether asking may bring another: not if it has just been asked for. */
    synchronized boolean refused() {
        isKnown = isRenewed; // the next one is not that of the session
        return isRenewed || !isFresh;
    }

    /** Whether there is another token than that of the session. */
    synchronized boolean isRenewed() {
        return isRenewed;
    }

    /** For how many milliseconds the session need not look again; asks for the next token if it is time to. */
    synchronized long patience() {
        long left = due == NEVER ? NEVER : due - clock.getAsLong();
        if (left > 0) {
            return left;
        }
        ask();
        return WAIT_MS;
    }

    private CompletableFuture<String> ask() {
        if (asking == null) {
            CompletableFuture<String> answer = new CompletableFuture<>();
            asking = answer;
            FutureTask<Void> task = new FutureTask<>(() -> call(answer), null);
            new Serial().execute(task);
            StatusSender.later(limitMs, () -> {
                if (fail(answer, new TimeoutException("it took longer than " + limitMs / 1000 + " s"))) {
                    task.cancel(true); // else its thread may be sending the handshake already
                }
            });
        }
        return asking;
    }

    private void call(CompletableFuture<String> answer) {
        try {
            String given = source.get();
            if (keep(answer, given)) {
                answer.complete(given);
            }
        } catch (Throwable failure) { // whatever it is, there is no token
            fail(answer, failure);
        }
    }

    /** Whether this is in time. */
    private synchronized boolean keep(CompletableFuture<String> answer, String given) {
        if (asking != answer) {
            return false;
        }
        asking = null;
        isRenewed = isKnown && !Objects.equals(given, token);
        token = given;
        isKnown = true;
        hasFailed = false;
        expiry = expiry(given);
        due = next();
        return true;
    }

    /** Whether this is in time: before the function has returned, or has failed. */
    private boolean fail(CompletableFuture<String> answer, Throwable failure) {
        return postpone(answer, failure) && answer.completeExceptionally(failure);
    }

    private synchronized boolean postpone(CompletableFuture<String> answer, Throwable failure) {
        if (asking != answer) {
            return false;
        }
        asking = null;
        due = next();
        if (isKnown && !hasFailed) {
            LOG.warn("the function that gives the token failed, the last token stays in use: {}", failure.toString());
        }
        hasFailed = true;
        return true;
    }

    /** When to ask next. Clients whose tokens were issued at one moment do not ask at one moment. */
    private long next() {
        long now = clock.getAsLong();
        long left = expiry - now;
        double early = Math.min(EARLY_MS, left / 4.0) * (1 - ThreadLocalRandom.current().nextDouble() / 2);
        return expiry == NEVER ? NEVER : now + Math.max(PAUSE_MS, left - (long) early);
    }
}

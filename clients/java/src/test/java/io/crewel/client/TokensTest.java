package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Base64;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

import org.junit.jupiter.api.Test;

/** When a function that gives tokens is asked, and what its failures do. */
class TokensTest {
    private static final long NOW = 1_000_000_000L;

    private final Queue<String> answers = new ArrayDeque<>();
    private final AtomicInteger asked = new AtomicInteger();
    private volatile long now = NOW;
    private final Tokens tokens = new Tokens(this::next, () -> now, 10_000);

    private String next() {
        synchronized (answers) {
            asked.incrementAndGet();
            String answer = answers.size() > 1 ? answers.poll() : answers.peek();
            if (answer.isEmpty()) {
                throw new IllegalStateException("no back end");
            }
            return answer;
        }
    }

    private static String living(long seconds, String id) {
        String claims = "{\"sub\": \"joe\", \"exp\": " + (NOW / 1000 + seconds) + ", \"jti\": \"" + id + "\"}";
        return "head." + Base64.getUrlEncoder().withoutPadding().encodeToString(claims.getBytes(StandardCharsets.UTF_8)) + ".sig";
    }

    /** Asks for the next token, and waits for the answer. */
    private void askAhead(int times) {
        tokens.patience();
        while (asked.get() < times) {
            Thread.onSpinWait();
        }
        for (long end = System.nanoTime() + 20_000_000_000L; tokens.patience() == 1000 && !tokens.isRenewed();) {
            assertTrue(System.nanoTime() < end);
        }
    }

    @Test
    void aTokenSaysWhenItExpires() {
        assertEquals(NOW + 5000, Tokens.expiry(living(5, "")));
        for (String none : List.of("", "secret", "a.b", "a.%%%.c", "a.e30.c")) {
            assertEquals(Long.MAX_VALUE, Tokens.expiry(none));
        }
        assertEquals(Long.MAX_VALUE, Tokens.expiry(null));
    }

    @Test
    void theNextOneIsAskedForBeforeTheLastOneExpires() {
        answers.addAll(List.of(living(100, "1"), living(200, "2")));
        assertEquals(living(100, "1"), tokens.take().join());
        long due = tokens.patience();
        assertTrue(due >= 75_000 && due <= 87_500, () -> "due: " + due);
        now += due;
        assertEquals(living(100, "1"), tokens.take().join(), "it holds");
        askAhead(2);
        assertTrue(tokens.isRenewed());
        assertEquals(living(200, "2"), tokens.take().join());
        assertFalse(tokens.isRenewed());
        assertEquals(2, asked.get());
    }

    @Test
    void theLastOneStaysInUseWhileTheFunctionFails() {
        answers.addAll(List.of(living(100, "1"), "", living(200, "2")));
        tokens.take().join();
        now += 90_000;
        askAhead(2);
        assertFalse(tokens.isRenewed());
        assertEquals(living(100, "1"), tokens.take().join());
        now += 10_000;
        assertEquals(living(200, "2"), tokens.take().join(), "the last one has expired");
    }

    @Test
    void oneThatWasRefusedIsAskedForAgainUnlessItHasJustBeenAskedFor() {
        answers.addAll(List.of(living(100, "1"), "", living(100, "2")));
        tokens.take().join();
        assertFalse(tokens.refused(), "it is fresh");
        assertThrows(CompletionException.class, () -> tokens.take().join(), "no token holds");
        assertEquals(living(100, "2"), tokens.take().join());
        tokens.take().join();
        assertTrue(tokens.refused());
    }

    @Test
    void oneThatDoesNotSayWhenItExpiresIsAskedForAtEachHandshake() {
        answers.addAll(List.of("first", "second", ""));
        assertEquals("first", tokens.take().join());
        assertEquals(Long.MAX_VALUE, tokens.patience());
        assertEquals("second", tokens.take().join());
        assertEquals("second", tokens.take().join(), "the function failed");
        assertTrue(tokens.refused());
    }

    @Test
    void aFunctionThatDoesNotAnswerHasFailedAndIsAskedAgain() throws Exception {
        CountDownLatch interrupted = new CountDownLatch(1);
        AtomicInteger calls = new AtomicInteger();
        Tokens hanging = new Tokens(() -> {
            if (calls.incrementAndGet() > 1) {
                return living(100, "2");
            }
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException cut) {
                interrupted.countDown();
            }
            return living(100, "1");
        }, () -> now, 50);
        CompletionException failure = assertThrows(CompletionException.class, () -> hanging.take().join());
        assertEquals(TimeoutException.class, failure.getCause().getClass());
        assertTrue(interrupted.await(20, TimeUnit.SECONDS));
        assertEquals(living(100, "2"), hanging.take().join());
    }

    @Test
    void whatFollowsAFunctionThatHasAnsweredInTimeIsNotInterrupted() {
        CompletableFuture<String> answer = new CompletableFuture<>();
        Tokens prompt = new Tokens(answer::join, () -> now, 1000);
        CompletableFuture<Boolean> interrupted = prompt.take().thenApply(token -> {
            try {
                Thread.sleep(1500); // as a handshake that opens a WebSocket
                return false;
            } catch (InterruptedException cut) {
                return true;
            }
        });
        answer.complete(living(100, "1"));
        assertFalse(interrupted.join());
    }
}

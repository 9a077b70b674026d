package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.common.HashMapMessage;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the extensions do with replies that the test chooses, over a wire that it holds; and their small parts. */
class ExtensionsTest {
    private static final Duration LIMIT = Duration.ofSeconds(LiveTest.LIMIT_S);
    private static final String BUSY = "429:limits.publishes_per_s:resource.temporary.unavailable";

    private final Wire wire = new Wire();
    private final BayeuxClient client = Wire.client(wire);

    private void connect() throws InterruptedException {
        client.handshake();
        wire.deliver();
    }

    @AfterEach
    void close() {
        client.abort();
    }

    private static Map<String, Object> refusal(String error) {
        return Map.of("successful", false, "error", error);
    }

    private static Message.Mutable message(String channel, Object data) {
        Message.Mutable message = new HashMapMessage();
        message.setChannel(channel);
        message.setData(data);
        return message;
    }

    private static <T extends Throwable> T failure(Class<T> kind, CompletableFuture<?> future) {
        ExecutionException failure = assertThrows(ExecutionException.class, () -> future.get(LiveTest.LIMIT_S, TimeUnit.SECONDS));
        return assertInstanceOf(kind, failure.getCause());
    }

    // Publishes

    @Test
    void aPublishBeyondARateIsRepeatedAlsoWithoutAKey() throws Exception {
        wire.publishes = message -> wire.published.size() == 1 ? refusal(BUSY) : Map.of();
        connect();
        new Publisher(client).publish("/a", 1, new PublishOptions()).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertEquals(2, wire.published.size());
    }

    @Test
    void aRefusalHasTheCodeThatStandsInItsErrorAlone() throws Exception {
        wire.publishes = message -> refusal("404:client/joe:user.ptp.unknownDestination");
        connect();
        PublishException refused = failure(PublishException.class, new Publisher(client).publish("/a", 1, new PublishOptions()));
        assertEquals("user.ptp.unknownDestination", refused.errorCode());
        assertTrue(refused.isRefused());
        wire.publishes = message -> refusal("403:denied by policy:publish_denied");
        assertEquals("", failure(PublishException.class, new Publisher(client).publish("/a", 1, new PublishOptions())).errorCode());
    }

    // Requests

    private String replyTo() {
        return wire.published.get(wire.published.size() - 1).getExt().get("replyTo").toString();
    }

    @Test
    void aRequestIsAnsweredInCountriesWithOtherDigits() throws Exception {
        Locale usual = Locale.getDefault();
        Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
        try {
            RequestExtension requests = RequestExtension.addTo(client);
            connect();
            CompletableFuture<Message> answer = requests.request("/a", 1, LIMIT);
            assertTrue(replyTo().matches("/ret/[A-Za-z0-9_-]+/1[0-9]{6}"), this::replyTo);
            wire.deliver(message(replyTo(), 2));
            assertEquals(2, answer.get(LiveTest.LIMIT_S, TimeUnit.SECONDS).getData());
        } finally {
            Locale.setDefault(usual);
        }
    }

    /** What was asked with a limit of an hour, and was answered at once. */
    private WeakReference<Object> answered(RequestExtension requests) throws Exception {
        Object data = new ArrayList<>(List.of(1));
        CompletableFuture<Message> answer = requests.request("/a", data, Duration.ofHours(1));
        wire.deliver(message(replyTo(), 2));
        answer.get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        wire.published.clear();
        return new WeakReference<>(data);
    }

    @Test
    void anAnsweredRequestIsNotKeptInMemory() throws Exception {
        RequestExtension requests = RequestExtension.addTo(client);
        connect();
        WeakReference<Object> data = answered(requests);
        for (long end = System.nanoTime() + LIMIT.toNanos(); data.get() != null;) {
            assertTrue(System.nanoTime() < end);
            System.gc();
            Thread.sleep(10);
        }
    }

    @Test
    void aResponderThatFailsWithoutACodeIsAnAnswerToo() throws Exception {
        RequestExtension responder = RequestExtension.addTo(client);
        connect();
        responder.reply("/a", request -> {
            throw new ErrorAnswerException(null, "no");
        });
        Message.Mutable request = message("/a", 1);
        request.getExt(true).put("replyTo", "/ret/x/1000001");
        wire.deliver(request);
        for (long end = System.nanoTime() + LIMIT.toNanos(); wire.published.isEmpty();) {
            assertTrue(System.nanoTime() < end);
        }
        Message answer = wire.published.get(0);
        assertEquals("/ret/x/1000001", answer.getChannel());
        assertEquals(Map.of("errorCode", "internal.unknown", "message", "no"), answer.getExt().get("error"));
    }

    // Presence

    private Presence follow() throws InterruptedException {
        PresenceExtension presences = PresenceExtension.addTo(client);
        connect();
        return presences.follow("/room");
    }

    @Test
    void aPresenceWhoseSubscriptionIsRefusedFailsAtOnceUntilTheNextSession() throws Exception {
        wire.subscribes = refusal("403:denied by policy:subscribe_denied");
        Presence room = follow();
        for (int time = 0; time < 2; time++) {
            ErrorAnswerException refused = failure(ErrorAnswerException.class, room.enter("here"));
            assertEquals("403:denied by policy:subscribe_denied", refused.getMessage());
        }
        wire.subscribes = Map.of();
        wire.publishes = message -> Map.of("data", Map.of("id", "joe", "epoch", "e", "seq", 1L, "members", List.of()));
        room.begin();
        room.ready().get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertEquals("joe", room.id());
    }

    @Test
    void aPresenceCallThatTheServerRefusesFailsAndOneBeyondARateIsRepeated() throws Exception {
        wire.publishes = message -> refusal("403:denied by policy:publish_denied");
        Presence room = follow();
        assertEquals("", failure(ErrorAnswerException.class, room.ready()).errorCode());
        wire.publishes = message -> refusal("403::user.security.authorization.notAuthorized");
        String code = failure(ErrorAnswerException.class, room.ready()).errorCode();
        assertEquals("user.security.authorization.notAuthorized", code);
        AtomicInteger calls = new AtomicInteger();
        Map<String, Object> members = Map.of("data", Map.of("epoch", "e", "seq", 1L, "members", List.of()));
        wire.publishes = message -> calls.getAndIncrement() == 0 ? refusal(BUSY) : members;
        room.ready().get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertEquals(2, calls.get());
    }

    // Sessions

    @Test
    void aHandshakeThatWaitsForItsTokenIsNotSentAfterANewerOne() throws Exception {
        CompletableFuture<String> token = new CompletableFuture<>();
        SessionExtension.addTo(client, new SessionOptions().name("joe/1").token(token::join));
        client.handshake();
        client.abort();
        client.handshake();
        token.complete("a token");
        wire.deliver();
        wire.deliver();
        assertEquals(1, wire.handshakes.size());
    }

    @Test
    void aLinkToAResumeFileStaysOne(@TempDir Path directory) throws Exception {
        Path linked = Files.createSymbolicLink(directory.resolve("linked"), Files.createDirectory(directory.resolve("real")));
        Path link = Files.createSymbolicLink(linked.resolve("link"), directory.resolve("resume"));
        ResumeFile file = new ResumeFile(link);
        for (String secret : List.of("first", "second")) {
            file.write(secret);
            assertEquals(secret, file.read());
        }
        assertTrue(Files.isSymbolicLink(link));
        file.write(null);
        assertNull(file.read());
        assertTrue(Files.isSymbolicLink(link));
        assertFalse(Files.exists(directory.resolve("resume")));
    }

    @Test
    void statusesFitByTheirBytes() {
        Statuses statuses = new Statuses();
        for (String id : List.of("1", "2")) {
            statuses.put(new Failure("user.update.error", "語".repeat(500)).status(id));
        }
        assertEquals(1, statuses.take("carrier", 2000).size());
    }
}

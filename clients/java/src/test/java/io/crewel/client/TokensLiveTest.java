package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tokens that a function gives, with a server that asks for JSON Web Tokens. */
class TokensLiveTest {
    private static final String SECRET = "a shared secret that has more than the sixty-four bytes that HS512 asks for";
    private static final long HOUR = 3600;

    @TempDir
    Path directory;

    private final List<String> given = new CopyOnWriteArrayList<>();

    private Path keys() {
        return directory.resolve("secret");
    }

    private Server server() throws Exception {
        Files.writeString(keys(), SECRET);
        return new Server(directory, "security.policy=jwt", "security.jwt_keys=" + keys(), "security.jwt_leeway_ms=0",
            "topics.\"/orders\".history.max_entries=100");
    }

    private String signed(String secret, long seconds) {
        try {
            String claims = String.format("{\"sub\": \"joe\", \"exp\": %d, \"jti\": \"%d\", \"publish\": [\"/orders\"], "
                + "\"subscribe\": [\"/orders\"]}", System.currentTimeMillis() / 1000 + seconds, given.size());
            Base64.Encoder encoder = Base64.getUrlEncoder().withoutPadding();
            String text = encoder.encodeToString("{\"alg\": \"HS256\", \"typ\": \"JWT\"}".getBytes(StandardCharsets.UTF_8)) + "."
                + encoder.encodeToString(claims.getBytes(StandardCharsets.UTF_8));
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
            given.add(text + "." + encoder.encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8))));
            return given.get(given.size() - 1);
        } catch (java.security.GeneralSecurityException failure) {
            throw new IllegalStateException(failure);
        }
    }

    @Test
    void aTokenIsRenewedBeforeItExpiresAndNothingIsLostOrComesTwice() throws Exception {
        BlockingQueue<Object> heard = new LinkedBlockingQueue<>();
        List<String> refused = new CopyOnWriteArrayList<>();
        List<Boolean> reconnected = new CopyOnWriteArrayList<>();
        try (Server server = server(); Person joe = new Person(server)) {
            SessionExtension session = SessionExtension.addTo(joe.client, new SessionOptions().name("joe/1")
                .token(() -> signed(SECRET, 6))
                .onChange(changed -> reconnected.add(changed.isReconnected())));
            UpdateExtension update = UpdateExtension.addTo(joe.client);
            joe.client.getChannel(Channel.META_CONNECT).addListener((ClientSessionChannel.MessageListener) (channel, message) -> {
                if (String.valueOf(message.get(Message.ERROR_FIELD)).contains("expired")) {
                    refused.add(message.toString());
                }
            });
            Map<String, Object> asked = Map.of("history", Map.of("numEntries", 10));
            joe.open(reply -> update.subscribe("/orders", asked, delivery -> heard.add(delivery.data()), answer -> { }));
            Publisher publisher = new Publisher(joe.client);
            List<Object> published = new ArrayList<>();
            for (long number = 0; reconnected.size() < 3; number++) {
                publisher.publish("/orders", number, PublishOptions.persistent()).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
                published.add(number);
                assertEquals(number, heard.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS));
            }
            assertEquals(List.of(false, true, true), reconnected.subList(0, 3));
            assertEquals(List.of(), refused, "the server asked for no handshake");
            assertEquals(List.of(), List.copyOf(heard));
            assertTrue(given.size() >= 3);
            assertEquals(null, session.refusal());
        }
    }

    @Test
    void aHeldConnectDoesNotKeepASilentClientFromItsNextToken() throws Exception {
        BlockingQueue<Boolean> reconnected = new LinkedBlockingQueue<>();
        try (Server server = server(); Person joe = new Person(server)) {
            SessionExtension.addTo(joe.client, new SessionOptions().name("joe/1")
                .token(() -> signed(SECRET, given.isEmpty() ? 4 : HOUR))
                .onChange(changed -> reconnected.add(changed.refusal() == null && changed.isReconnected())));
            joe.open(reply -> { });
            assertEquals(false, reconnected.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS));
            assertEquals(true, reconnected.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS));
            assertEquals(2, given.size());
        }
    }

    @Test
    void aTokenThatIsNotTakenAnyMoreIsAskedForAgain() throws Exception {
        String next = "another secret that has more than the sixty-four bytes that HS512 asks for";
        BlockingQueue<SessionExtension> changes = new LinkedBlockingQueue<>();
        try (Server server = server(); Person joe = new Person(server)) {
            SessionExtension session = SessionExtension.addTo(joe.client, new SessionOptions().name("joe/1")
                .token(() -> signed(given.isEmpty() ? SECRET : next, HOUR)).onChange(changes::add));
            joe.open(reply -> { });
            changes.clear();
            server.kill();
            Files.writeString(keys(), next);
            server.start();
            while (changes.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS) != null && session.refusal() != null) {
                assertTrue(session.refusal().errorCode().startsWith("user.security"), session.refusal()::toString);
            }
            assertEquals(null, session.refusal());
            assertEquals(2, given.size());
            new Publisher(joe.client).publish("/orders", 1, PublishOptions.persistent()).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        }
    }

    @Test
    void aHandshakeWaitsForATokenAndSaysWhyThereIsNone() throws Exception {
        BlockingQueue<String> reasons = new LinkedBlockingQueue<>();
        try (Server server = server(); Person joe = new Person(server)) {
            SessionExtension.addTo(joe.client, new SessionOptions().name("joe/1").token(() -> {
                if (reasons.isEmpty()) {
                    throw new IllegalStateException("no back end");
                }
                return signed(SECRET, HOUR);
            }).onChange(session -> reasons.add(String.valueOf(session.refusal()))));
            joe.open(reply -> { });
            String reason = "the function that gives the token failed: java.lang.IllegalStateException: no back end";
            assertEquals(new Refusal("", reason, null, false).toString(), reasons.poll());
            assertEquals("null", reasons.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS));
        }
    }
}

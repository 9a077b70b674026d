package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.ClientTransport;
import org.cometd.common.JettyJSONContextClient;
import org.eclipse.jetty.util.ajax.JSON;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Publishes that wait for the server in a file: over a wire that the test holds, and with a real server. */
class OutboxTest {
    private static final Duration LIMIT = Duration.ofSeconds(LiveTest.LIMIT_S);

    @TempDir
    Path directory;

    private final Wire wire = new Wire();
    private final BayeuxClient client = Wire.client(wire);
    private final List<Outbox> opened = new ArrayList<>();

    private Path file() {
        return directory.resolve("orders.outbox");
    }

    private Outbox outbox(OutboxOptions options) {
        Outbox outbox = Outbox.addTo(client, file(), options);
        opened.add(outbox);
        return outbox;
    }

    private Outbox outbox() {
        return outbox(new OutboxOptions());
    }

    private void connect() throws InterruptedException {
        client.handshake();
        wire.deliver();
    }

    @AfterEach
    void close() {
        opened.forEach(Outbox::close);
        client.abort();
    }

    private List<Object> sent() {
        return wire.published.stream().map(Message::getData).toList();
    }

    private static Map<String, Object> refusal(String error, String code) {
        Map<String, Object> publish = Map.of("errorCode", code, "message", "the reason");
        return Map.of("successful", false, "error", error, "ext", Map.of("publish", publish));
    }

    @Test
    void whatIsKeptIsSentInItsOrderOnceTheClientIsConnected() throws Exception {
        Outbox outbox = outbox();
        String key = outbox.publish("/orders", Map.of("pizza", 2), new PublishOptions().priority(9));
        for (long number = 1; number < 120; number++) {
            outbox.publish("/orders", number);
        }
        assertEquals(120, outbox.waiting());
        assertEquals(List.of(), sent());
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file())));
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(LongStream.range(1, 120).boxed().toList(), sent().subList(1, 120));
        Message first = wire.published.get(0);
        assertEquals(Map.of("pizza", 2L), first.getData());
        assertEquals(Map.of("persistent", true, "priority", 9L, "key", key, "clientProperties", Map.of("idempotencyKey", key)),
            Ext.part(first, "publish"));
    }

    @Test
    void aPublishWhoseReplyIsLostIsRepeatedWithItsKeyAndAKeyThatWaitsIsNotAddedAgain() throws Exception {
        Outbox outbox = outbox();
        assertEquals("17", outbox.publish("/orders", 1L, new PublishOptions().key("17")));
        assertEquals("17", outbox.publish("/orders", 1L, new PublishOptions().key("17")));
        wire.publishes = message -> wire.published.size() == 1 ? null : Map.of("successful", true);
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of("17", "17"), wire.published.stream().map(each -> Ext.part(each, "publish").get("key")).toList());
    }

    @Test
    void whatTheServerRefusesIsPutAsideWithTheReasonAndTheNextOnesAreSent() throws Exception {
        BlockingQueue<RefusedPublish> told = new LinkedBlockingQueue<>();
        Outbox outbox = outbox(new OutboxOptions().onRefused(told::add));
        wire.publishes = message -> message.getData().equals(2L) ? refusal("403::denied", "user.security") : Map.of();
        for (long number = 1; number <= 3; number++) {
            outbox.publish("/orders", number, new PublishOptions().key("k" + number));
        }
        connect();
        RefusedPublish refused = new RefusedPublish("k2", "/orders", 2L, "user.security", "403::denied (the reason)");
        assertEquals(refused, told.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS));
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of(1L, 2L, 3L), sent());
        outbox.close();

        Outbox next = outbox();
        assertEquals(List.of(refused), next.refused());
        wire.publishes = message -> Map.of();
        next.publish("/orders", 2L, new PublishOptions().key("k2"));
        assertEquals(List.of(), next.refused(), "the same publish takes its place");
        assertTrue(next.drained(LIMIT));
    }

    @Test
    void refusedPublishesAreForgottenForGood() throws Exception {
        Outbox outbox = outbox();
        wire.publishes = message -> refusal("400::no", "user.illegalArgument");
        outbox.publish("/orders", 1L);
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(1, outbox.refused().size());
        outbox.forgetRefused();
        outbox.close();
        assertEquals(List.of(), outbox().refused());
    }

    @Test
    void itHasABound() {
        Outbox few = outbox(new OutboxOptions().maxMessages(2));
        few.publish("/orders", 1);
        few.publish("/orders", 2);
        String said = assertThrows(OutboxFullException.class, () -> few.publish("/orders", 3)).getMessage();
        assertTrue(said.startsWith("the outbox is full: it has 2 of 2 messages, and "), said);
        few.close();
        Outbox small = outbox(new OutboxOptions().maxBytes(1000));
        assertThrows(OutboxFullException.class, () -> small.publish("/orders", "x".repeat(1000)));
        assertEquals(2, small.waiting());
    }

    @Test
    void whatCannotBePublishedIsRefusedAtOnce() {
        Outbox outbox = outbox();
        for (String channel : List.of("/orders/*", "/meta/connect", "orders")) {
            assertThrows(IllegalArgumentException.class, () -> outbox.publish(channel, 1));
        }
        String said = assertThrows(PublishException.class, () -> outbox.publish("/orders", Map.of("price", Double.NaN))).getMessage();
        assertEquals("/orders: data.price is NaN, which JSON cannot represent", said);
        BigDecimal decimal = new BigDecimal(BigInteger.TEN.pow(20));
        for (Number large : List.of(BigInteger.TEN.pow(30), decimal, decimal.setScale(1))) {
            said = assertThrows(PublishException.class, () -> outbox.publish("/orders", List.of(large))).getMessage();
            assertEquals("/orders: data[0] has more digits than a number of JSON that is read back: give it as text", said);
        }
        said = assertThrows(PublishException.class, () -> outbox.publish("/orders", Map.of("half \ud83d", 1))).getMessage();
        assertEquals("/orders: a name in data is text that is not valid Unicode, which JSON cannot represent", said);
        assertEquals(0, outbox.waiting());
    }

    @Test
    void aPublishThatIsNotReadBackDoesNotDamageTheFile() throws Exception {
        Outbox outbox = outbox();
        Object wrong = Map.of("of", new JSON.Literal("{wrong"));
        String said = assertThrows(PublishException.class, () -> outbox.publish("/orders", wrong)).getMessage();
        assertTrue(said.startsWith("/orders: the JSON library of the client does not read back what it writes of the data: "), said);
        assertEquals(0, outbox.waiting());
        outbox.publish("/orders", new JSON.Literal("{\n}"));
        outbox.close();
        Outbox next = outbox();
        connect();
        assertTrue(next.drained(LIMIT));
        assertEquals(List.of(Map.of()), sent());
    }

    private record Order(long pizza) { }

    @Test
    void whatIsKeptIsWrittenAsTheClientWritesIt() throws Exception {
        var json = new JettyJSONContextClient();
        json.getJSON().addConvertor(Order.class, new JSON.Convertor() {
            @Override
            public void toJSON(Object order, JSON.Output out) {
                out.add("pizza", ((Order) order).pizza());
            }

            @Override
            public Object fromJSON(Map<String, Object> fields) {
                return fields;
            }
        });
        wire.setOption(ClientTransport.JSON_CONTEXT_OPTION, json);
        Outbox outbox = outbox();
        outbox.publish("/orders", new Order(2));
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of(Map.of("pizza", 2L)), sent());
    }

    private static Map<String, Object> limited(String limit, String code, long retryAfterMs) {
        Map<String, Object> publish = Map.of("errorCode", code, "message", "the reason", "retryAfter", retryAfterMs);
        return Map.of("successful", false, "error", "429:" + limit + ":" + code, "ext", Map.of("publish", publish));
    }

    @Test
    void aCapKeepsOnlyTheChannelWaitingThatItStops() throws Exception {
        Outbox outbox = outbox();
        AtomicBoolean isFull = new AtomicBoolean(true);
        wire.publishes = message -> {
            if (message.getChannel().equals("/old")) {
                isFull.set(false);
            }
            return isFull.get() ? limited("limits.max_channels", "resource.exhaust", 100) : Map.of();
        };
        for (long number = 0; number < 60; number++) {
            outbox.publish("/new", number);
        }
        outbox.publish("/old", "other");
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of(), outbox.refused());
        List<Object> expected = new ArrayList<>(LongStream.range(0, 50).boxed().toList());
        expected.add("other");
        expected.addAll(LongStream.range(0, 60).boxed().toList());
        assertEquals(expected, sent());
    }

    @Test
    void aRatePutsPublishesOffForAsLongAsTheServerSaysAndTheyAreSentTogetherThen() throws Exception {
        Outbox outbox = outbox();
        AtomicInteger left = new AtomicInteger(20);
        wire.publishes = message -> left.getAndDecrement() > 0
            ? limited("limits.publishes_per_s", "resource.temporary.unavailable", 1500) : Map.of();
        for (long number = 0; number < 20; number++) {
            outbox.publish("/orders", number);
        }
        long began = System.nanoTime();
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertTrue(System.nanoTime() - began >= 1_500_000_000L);
        assertEquals(List.of(), outbox.refused());
        assertEquals(List.of(20, 20), wire.sizes);
    }

    @Test
    void whatASocketIsClosedForBecauseOfItsSizeIsPutAside() throws Exception {
        Outbox outbox = outbox();
        wire.cut = new EOFException("Connection closed 1009 request body too large (bayeux.max_message_bytes is 1000)");
        wire.publishes = message -> message.getData() instanceof Map ? null : Map.of();
        outbox.publish("/orders", Map.of("x".repeat(1000), 1)); // its name is what is large
        outbox.publish("/orders", 1L);
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of("user.maxSizeExceed"), outbox.refused().stream().map(RefusedPublish::errorCode).toList());
    }

    @Test
    void whatTheClientDoesNotSendForItsSizeIsPutAsideAndNotWhatFailsWithIt() throws Exception {
        Outbox outbox = outbox();
        wire.cut = new IllegalArgumentException("Max send Bayeux message size 1000 exceeded"); // one by one, as a WebSocket does
        wire.publishes = message -> wire.published.size() <= 2 ? null : Map.of();
        outbox.publish("/orders", "x".repeat(1000));
        outbox.publish("/orders", 1L);
        connect();
        assertTrue(outbox.drained(LIMIT));
        List<RefusedPublish> refused = outbox.refused();
        String reason = "Max send Bayeux message size 1000 exceeded: an option of the client, maxSendBayeuxMessageSize";
        assertEquals(List.of("user.maxSizeExceed " + reason), refused.stream().map(each -> each.errorCode() + " " + each.message()).toList());
        assertEquals(List.of(1L, 1L), sent().subList(1, 3));
    }

    @Test
    void aRefusedPublishWithAnEmptyKeyIsPutAside() throws Exception {
        Outbox outbox = outbox();
        wire.publishes = message -> refusal("400::no", "user.illegalArgument");
        outbox.publish("/orders", 1L, new PublishOptions().key(""));
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of(""), outbox.refused().stream().map(RefusedPublish::key).toList());
    }

    @Test
    void aLinkToTheFileOrToItsDirectoryStaysOne() throws Exception {
        Path linked = Files.createSymbolicLink(directory.resolve("linked"), Files.createDirectory(directory.resolve("real")));
        Path there = linked.resolve("there.outbox");
        Files.createSymbolicLink(file(), there);
        Outbox outbox = outbox();
        outbox.publish("/orders", 1);
        outbox.close();
        assertTrue(Files.isSymbolicLink(file()));
        Outbox next = Outbox.addTo(client, there);
        opened.add(next);
        assertEquals(1, next.waiting());
    }

    @Test
    void aFileIsOfOneOutboxAtATime() throws Exception {
        Outbox outbox = outbox();
        outbox.publish("/orders", 1);
        String said = assertThrows(IllegalStateException.class, this::outbox).getMessage();
        assertEquals("the outbox " + file() + " is in use: one client of one process has it at a time", said);
        Process other = program("http://127.0.0.1:1/cometd");
        try (BufferedReader errors = other.errorReader()) {
            assertTrue(errors.lines().anyMatch(line -> line.contains(said)));
        } finally {
            other.destroyForcibly();
        }
        outbox.close();
        assertThrows(UncheckedIOException.class, outbox::forgetRefused);
        assertEquals(1, outbox().waiting());
    }

    @Test
    void aLineThatAKillCutOffIsNotThereAndADamagedOneIsNamed() throws Exception {
        Outbox outbox = outbox();
        outbox.publish("/orders", "whole");
        outbox.close();
        Files.writeString(file(), "{\"key\": \"x\", \"chan", StandardOpenOption.APPEND);
        outbox = outbox();
        assertEquals(1, outbox.waiting());
        outbox.publish("/orders", "next");
        outbox.close();
        assertEquals(2, outbox().waiting());
        opened.get(opened.size() - 1).close();
        Files.writeString(file(), Files.readString(file()).replaceFirst("\"channel\"", "channel"));
        assertDamaged("is damaged: line 2 is not JSON");
        Files.writeString(file(), "{\"crewel.outbox\": 2}\n");
        assertDamaged("is no outbox of format 1");
        Files.writeString(file(), "a letter");
        assertDamaged("is no outbox");
        assertEquals("a letter", Files.readString(file()));
    }

    private void assertDamaged(String why) {
        IOException cause = assertThrows(UncheckedIOException.class, this::outbox).getCause();
        assertTrue(cause.getMessage().contains(file().toString()) && cause.getMessage().endsWith(why), cause.getMessage());
    }

    @Test
    void aFileDoesNotGrowWithWhatHasEnded() throws Exception {
        Outbox outbox = outbox();
        connect();
        for (int number = 0; number < 60; number++) {
            outbox.publish("/orders", "x".repeat(40_000));
            assertTrue(outbox.drained(LIMIT));
        }
        assertTrue(Files.size(file()) < 1_200_000, () -> "bytes: " + file().toFile().length());
    }

    @Test
    void anInterruptedPublishLeavesTheFileOpen() throws Exception {
        Outbox outbox = outbox();
        Thread.currentThread().interrupt();
        outbox.publish("/orders", 1);
        assertTrue(Thread.interrupted(), "the interrupt is the caller's");
        outbox.publish("/orders", 2);
        connect();
        assertTrue(outbox.drained(LIMIT));
        assertEquals(List.of(1L, 2L), sent());
        Thread.currentThread().interrupt();
        outbox.forgetRefused();
        outbox.close();
        outbox();
        assertTrue(Thread.interrupted());
    }

    @Test
    void anInterruptedThreadWritesTheFileAgain() throws Exception {
        var json = new JettyJSONContextClient();
        try (OutboxFile kept = new OutboxFile(file(), json)) {
            kept.add(kept.line(Map.of("key", "large", "channel", "/orders", "data", "x".repeat(1_200_000))));
            kept.add(kept.line(Map.of("key", "small", "channel", "/orders", "data", 1)));
            Thread.currentThread().interrupt();
            kept.settle(List.of(new OutboxFile.Outcome("large", null)));
            assertTrue(Files.size(file()) < 1000);
            kept.add(kept.line(Map.of("key", "last", "channel", "/orders", "data", 2)));
        }
        assertTrue(Thread.interrupted());
        try (OutboxFile kept = new OutboxFile(file(), json)) {
            assertEquals(List.of("small", "last"), kept.oldest(9, 1000, Set.of()).stream().map(each -> each.get("key")).toList());
        }
    }

    @Test
    void aFileThatIsNotReplacedIsNotCutOff() throws Exception {
        var json = new JettyJSONContextClient();
        try (OutboxFile kept = new OutboxFile(file(), json)) {
            kept.add(kept.line(Map.of("key", "large", "channel", "/orders", "data", "x".repeat(1_200_000))));
            kept.add(kept.line(Map.of("key", "small", "channel", "/orders", "data", 1)));
            Path aside = directory.resolve("aside");
            Files.move(file(), aside);
            Files.createDirectories(file().resolve("any")); // so that no file takes its name
            kept.settle(List.of(new OutboxFile.Outcome("large", null)));
            assertFalse(Files.exists(directory.resolve("orders.outbox.new")));
            Files.delete(file().resolve("any"));
            Files.move(aside, file(), StandardCopyOption.REPLACE_EXISTING);
            kept.add(kept.line(Map.of("key", "last", "channel", "/orders", "data", 2)));
            assertTrue(Files.size(file()) > 1_200_000);
        }
        try (OutboxFile kept = new OutboxFile(file(), json)) {
            assertEquals(List.of("small", "last"), kept.oldest(9, 1000, Set.of()).stream().map(each -> each.get("key")).toList());
        }
    }

    @Test
    void aFileThatCannotBeWrittenAgainStaysInUse() throws Exception {
        Outbox outbox = outbox();
        Path beside = directory.resolve("orders.outbox.new");
        Files.createDirectories(beside.resolve("any"));
        connect();
        for (int number = 0; number < 30; number++) {
            outbox.publish("/orders", "x".repeat(40_000));
        }
        assertTrue(outbox.drained(LIMIT));
        assertEquals(30, sent().size());
        assertTrue(Files.size(file()) > 1_200_000);
        wire.publishes = message -> null;
        outbox.publish("/orders", "waits");
        outbox.close();
        Files.writeString(file(), "{\"key\": \"cut", StandardOpenOption.APPEND);
        try (OutboxFile next = new OutboxFile(file(), new JettyJSONContextClient())) {
            String key = next.oldest(9, 1000, Set.of()).get(0).get("key").toString();
            next.add(next.line(Map.of("key", "last", "channel", "/orders", "data", 2)));
            Files.delete(beside.resolve("any"));
            next.settle(List.of(new OutboxFile.Outcome(key, null)));
        }
        assertEquals(2, Files.readAllLines(file()).size());
        assertEquals(1, outbox().waiting());
    }

    // With a real server

    private Process program(String url) throws IOException {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String[] command = {
            java, "-cp", System.getProperty("java.class.path"), OutboxProgram.class.getName(), url, file().toString(), "/orders"
        };
        return new ProcessBuilder(command).start();
    }

    @Test
    void nothingIsLostAndNothingComesTwiceWhateverIsKilled() throws Exception {
        BlockingQueue<Object> heard = new LinkedBlockingQueue<>();
        try (Server server = new Server(directory); Person receiver = new Person(server); Person shop = new Person(server)) {
            SessionExtension.addTo(receiver.client, new SessionOptions().name("kitchen/1").persistent());
            UpdateExtension update = UpdateExtension.addTo(receiver.client);
            receiver.open(reply -> update.subscribe("/orders", delivery -> heard.add(delivery.data())));
            long kept = killed(program(server.url()), server);

            Outbox outbox = Outbox.addTo(shop.client, file());
            opened.add(outbox);
            shop.open(reply -> { });
            for (long number = 1_000_000; number < 1_000_060; number++) {
                outbox.publish("/orders", number);
                if (number == 1_000_020) {
                    server.kill();
                    server.start();
                }
            }
            assertTrue(outbox.drained(Duration.ofSeconds(60)), () -> "waiting: " + outbox.waiting());
            assertEquals(List.of(), outbox.refused());
            List<Object> all = new ArrayList<>();
            while (!all.contains(1_000_059L)) {
                all.add(heard.poll(60, TimeUnit.SECONDS));
            }
            long first = all.size() - 60;
            assertTrue(first > kept, () -> first + " came, and " + kept + " were kept"); // perhaps one more, which it did not print
            List<Long> expected = new ArrayList<>(LongStream.range(0, first).boxed().toList());
            expected.addAll(LongStream.range(1_000_000, 1_000_060).boxed().toList());
            assertEquals(expected, all);
        }
    }

    /** The last number that a program kept before it was killed, and its server with it. */
    private static long killed(Process program, Server server) throws Exception {
        long kept = -1;
        try (var printed = new BufferedReader(new InputStreamReader(program.getInputStream(), StandardCharsets.UTF_8))) {
            while (kept < 200) {
                kept = Long.parseLong(printed.readLine());
            }
            program.toHandle().destroyForcibly(); // which leaves what it has printed to be read
            server.kill();
            for (String line = printed.readLine(); line != null; line = printed.readLine()) {
                kept = Long.parseLong(line);
            }
        }
        program.waitFor();
        server.start();
        return kept;
    }

    @Test
    void whatTheServerNeverTakesIsPutAsideAndDoesNotKeepOthersWaiting() throws Exception {
        try (Server server = new Server(directory); Person shop = new Person(server)) {
            Outbox outbox = Outbox.addTo(shop.client, file());
            opened.add(outbox);
            outbox.publish("/orders", 1);
            outbox.publish("/orders", "x".repeat(100_000));
            outbox.publish("/orders", "x".repeat(2_000_000));
            outbox.publish("/orders", 2, new PublishOptions().to("client/absent"));
            outbox.publish("/orders", 3);
            assertFalse(outbox.drained(Duration.ofMillis(1)));
            shop.open(reply -> { });
            assertTrue(outbox.drained(LIMIT));
            List<String> codes = outbox.refused().stream().map(RefusedPublish::errorCode).toList();
            assertEquals(List.of("user.maxSizeExceed", "user.maxSizeExceed", "user.ptp.unknownDestination"), codes);
        }
    }

    @Test
    void aCapOfTheServerIsWaitedFor() throws Exception {
        try (Server server = new Server(directory, "limits.max_scheduled=1"); Person shop = new Person(server)) {
            Outbox outbox = Outbox.addTo(shop.client, file());
            opened.add(outbox);
            for (int number = 0; number < 2; number++) {
                outbox.publish("/orders", number, new PublishOptions().field("deliverAfter", 500));
            }
            outbox.publish("/orders", "now");
            shop.open(reply -> { });
            while (outbox.waiting() > 1) {
                Thread.onSpinWait(); // the last one is not kept waiting
            }
            assertTrue(outbox.drained(LIMIT));
            assertEquals(List.of(), outbox.refused());
        }
    }
}

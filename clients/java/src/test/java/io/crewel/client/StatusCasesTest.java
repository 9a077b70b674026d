package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.stream.Stream;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.common.HashMapMessage;
import org.eclipse.jetty.util.ajax.JSON;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The list that all clients obey: what the extension reports for what listeners do. */
class StatusCasesTest {
    private static final Path LIST = Path.of("../../tests/clients/statuses.json");

    @TestFactory
    Stream<DynamicTest> theStatusesAreThoseOfTheList() throws IOException {
        return rows("cases")
            .filter(row -> !row.containsKey("only") || Ext.list(row.get("only")).contains("java"))
            .map(row -> DynamicTest.dynamicTest(row.get("name").toString(), () -> assertStatuses(row)));
    }

    @TestFactory
    Stream<DynamicTest> theHandshakeAsksForWhatTheListSays() throws IOException {
        return rows("handshakes").map(row -> DynamicTest.dynamicTest(row.get("name").toString(), () -> assertHandshake(row)));
    }

    @TestFactory
    Stream<DynamicTest> theListSaysWhichRefusalsOfAPublishAreForGood() throws IOException {
        return rows("publishes").map(row -> DynamicTest.dynamicTest(row.get("error").toString(), () -> {
            Message.Mutable reply = new HashMapMessage();
            reply.setSuccessful(false);
            reply.put(Message.ERROR_FIELD, row.get("error"));
            reply.put(Message.EXT_FIELD, Map.of("publish", Map.of("errorCode", row.get("errorCode"))));
            assertEquals(row.get("isRepeated"), Refusals.isPassing(reply) || Refusals.isForCap(reply));
        }));
    }

    private static Stream<Map<String, Object>> rows(String part) throws IOException {
        Object list = plain(new JSON().fromJSON(Files.readString(LIST)));
        return Ext.list(Ext.fields(list).get(part)).stream().map(Ext::fields);
    }

    /** A value of the list, with long texts written out. */
    private static Object plain(Object value) {
        if (value instanceof Map<?, ?> fields && fields.get("repeat") instanceof String text) {
            String whole = text.repeat(((Number) fields.get("times")).intValue());
            return fields.get("length") instanceof Number length ? whole.substring(0, length.intValue()) : whole;
        }
        if (value instanceof Map) {
            Map<String, Object> copy = new LinkedHashMap<>();
            Ext.fields(value).forEach((name, each) -> copy.put(name, plain(each)));
            return copy;
        }
        if (value instanceof Object[] || value instanceof List) {
            return new ArrayList<>(Ext.list(value).stream().map(StatusCasesTest::plain).toList());
        }
        return value instanceof Number number ? (Object) number.longValue() : value;
    }

    private static void assertHandshake(Map<String, Object> row) throws InterruptedException {
        Wire wire = new Wire();
        BayeuxClient client = Wire.client(wire);
        UpdateOptions options = new UpdateOptions();
        Ext.fields(row.get("asked")).forEach(options::field);
        UpdateExtension.addTo(client, options);
        client.handshake();
        wire.deliver();
        assertEquals(row.get("session"), plain(wire.handshakes.get(0).getExt().get("session")));
        client.abort();
    }

    private static void assertStatuses(Map<String, Object> row) throws InterruptedException {
        Wire wire = new Wire();
        BayeuxClient client = Wire.client(wire);
        UpdateExtension update = UpdateExtension.addTo(client, options(row).executor(Runnable::run));
        client.handshake();
        wire.deliver();
        List<List<String>> heard = new ArrayList<>();
        subscribe(update, row.get("listeners"), heard);
        for (Object message : Ext.list(row.get("deliver"))) {
            wire.deliver(delivery(Ext.fields(message)));
            settle(wire);
        }
        subscribe(update, row.get("late"), heard);
        settle(wire);
        assertEquals(row.get("statuses"), plain(wire.statuses));
        assertEquals(row.get("heard"), heard);
        client.abort();
    }

    private static UpdateOptions options(Map<String, Object> row) {
        Map<String, Object> given = Ext.fields(row.get("options"));
        UpdateOptions options = new UpdateOptions().remembered((int) Ext.whole(given.get("remembered"), 10_000));
        long unclaimed = Ext.whole(given.get("unclaimedMs"), -1);
        return unclaimed < 0 ? options : options.unclaimed(Duration.ofMillis(unclaimed));
    }

    private static void subscribe(UpdateExtension update, Object listeners, List<List<String>> heard) {
        for (Object steps : Ext.list(listeners)) {
            List<String> ids = new ArrayList<>();
            heard.add(ids);
            update.subscribeAsync("/a", delivery -> act(delivery, Ext.list(steps), ids));
        }
    }

    /** Two more connects: the first one, or a publish before it, has told all that there was to tell. */
    private static void settle(Wire wire) throws InterruptedException {
        wire.deliver();
        wire.deliver();
    }

    private static Message.Mutable delivery(Map<String, Object> given) {
        Map<String, Object> update = new HashMap<>(given);
        Message.Mutable message = new HashMapMessage();
        Object channel = update.remove("channel");
        message.setChannel(channel == null ? "/a" : channel.toString());
        message.setData(Map.of());
        message.put("ext", Map.of("update", update));
        return message;
    }

    /** What a listener of a case does with this message. */
    private static CompletionStage<?> act(Delivery delivery, List<?> steps, List<String> heard) {
        Map<String, Object> step = Ext.fields(steps.get(Math.min(heard.size(), steps.size() - 1)));
        heard.add(delivery.id());
        return switch (step.get("does").toString()) {
            case "return" -> null;
            case "throw" -> throw thrown(step);
            case "resolve" -> CompletableFuture.completedFuture("done");
            case "reject" -> CompletableFuture.failedFuture(thrown(step));
            case "work" -> {
                delivery.working();
                yield new CompletableFuture<>();
            }
            default -> throw new AssertionError(step);
        };
    }

    private static RuntimeException thrown(Map<String, Object> step) {
        String text = step.get("message").toString();
        return step.containsKey("errorCode")
            ? new UpdateException(step.get("errorCode").toString(), text)
            : new IllegalStateException(text);
    }
}

package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.common.HashMapMessage;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The extension over a wire that the test holds, where a listener is called in the thread of the client. */
class UpdateExtensionTest {
    private final Wire wire = new Wire();
    private final BayeuxClient client = Wire.client(wire);
    private final List<Object> told = new ArrayList<>();

    private UpdateExtension open(UpdateOptions options) throws InterruptedException {
        UpdateExtension update = UpdateExtension.addTo(client, options.executor(Runnable::run));
        client.handshake();
        wire.deliver();
        return update;
    }

    @AfterEach
    void close() {
        client.abort();
    }

    private static Message.Mutable message(String channel, Map<String, Object> update) {
        Message.Mutable message = new HashMapMessage();
        message.setChannel(channel);
        message.setData("data");
        message.put("ext", Map.of("update", update));
        return message;
    }

    private static Map<String, Object> ok(String id) {
        return Map.of("id", id, "state", "OK");
    }

    @Test
    void theNoticeOfAnEndedSubscriptionIsToldOnceAndAcknowledged() throws Exception {
        UpdateExtension update = open(new UpdateOptions().onEnded(told::add));
        update.subscribe("/a", delivery -> { });
        Message.Mutable notice = new HashMapMessage();
        notice.setChannel(Channel.META_SUBSCRIBE);
        notice.setSuccessful(false);
        notice.put(Message.SUBSCRIPTION_FIELD, "/a");
        Map<String, Object> reason = Map.of("errorCode", "resource.filter", "message", "too expensive");
        notice.put("ext", Map.of("update", Map.of("id", "9"), "subscribe", reason));
        wire.deliver(notice);
        wire.deliver();
        wire.deliver(notice);
        wire.deliver();
        assertEquals(List.of(new EndedSubscription("/a", "resource.filter", "too expensive")), told);
        assertEquals(List.of(ok("9"), ok("9")), wire.statuses);
        update.subscribe("/a", delivery -> { });
        assertEquals(List.of("/a", "/a"), wire.subscribed); // the client sends the subscribe again
    }

    @Test
    void aStatusThatTheServerDidNotTakeIsToldButForOnesOfOurOwn() throws Exception {
        open(new UpdateOptions().onRejected(told::add));
        Map<String, Object> late = Map.of("id", "1", "state", "OK", "reason", "not open");
        wire.reject(late);
        wire.deliver();
        wire.reject(Map.of("id", "2", "state", "UNCLAIMED", "reason", "not open"));
        wire.deliver();
        wire.deliver();
        assertEquals(List.of(late), told);
    }

    @Test
    void listenersOfTheStockMethodReportNothing() throws Exception {
        UpdateExtension update = open(new UpdateOptions());
        client.getChannel("/a").subscribe((channel, message) -> told.add(message.getData()));
        wire.deliver(message("/a", Map.of("id", "1")));
        assertEquals(List.of("data"), told);
        assertEquals(1, update.unclaimed());
    }

    @Test
    void aSubscribeThatMayNotHaveArrivedIsRepeatedForAllListenersOfTheChannel() throws Exception {
        UpdateExtension update = open(new UpdateOptions());
        wire.cutsSubscribes = true;
        CountDownLatch arrived = new CountDownLatch(1);
        update.subscribe("/a", Map.of(), delivery -> told.add("first"), reply -> arrived.countDown());
        update.subscribe("/a", delivery -> told.add("second"));
        wire.cutsSubscribes = false;
        assertTrue(arrived.await(20, TimeUnit.SECONDS));
        for (long end = System.nanoTime() + 20_000_000_000L; client.getChannel("/a").getSubscribers().size() < 2;) {
            assertTrue(System.nanoTime() < end);
        }
        wire.deliver(message("/a", Map.of("id", "1")));
        assertEquals(Set.of("first", "second"), Set.copyOf(told));
        assertEquals("/a", wire.subscribed.get(wire.subscribed.size() - 1));
    }

    @Test
    void aMessageThatComesBeforeASubscribeIsRepeatedGoesToItsListener() throws Exception {
        UpdateExtension update = open(new UpdateOptions());
        wire.cutsSubscribes = true;
        CountDownLatch heard = new CountDownLatch(1);
        update.subscribe("/a", delivery -> heard.countDown());
        wire.deliver(message("/a", Map.of("id", "1"))); // the session continues, and its subscription at the server
        assertEquals(1, update.unclaimed());
        wire.cutsSubscribes = false;
        assertTrue(heard.await(20, TimeUnit.SECONDS));
        assertEquals(0, update.unclaimed());
    }

    @Test
    void aMessageOfAnEndedSubscriptionIsAcknowledged() throws Exception {
        UpdateExtension update = open(new UpdateOptions());
        Subscription subscription = update.subscribe("/a/**", delivery -> told.add(delivery.id()));
        wire.deliver(message("/a/b", Map.of("id", "1")));
        subscription.unsubscribe();
        wire.deliver(message("/a/b", Map.of("id", "2", "subscription", "/a/**")));
        wire.deliver(message("/a/b", Map.of("id", "3")));
        wire.deliver();
        assertEquals(List.of("1"), told);
        assertEquals(List.of(ok("1"), ok("2"), ok("3")), wire.statuses);
    }

    @Test
    void whatWaitsForAListenerThatIsUnsubscribedIsAcknowledged() throws Exception {
        List<Runnable> waiting = new ArrayList<>();
        UpdateExtension update = UpdateExtension.addTo(client, new UpdateOptions().executor(waiting::add));
        client.handshake();
        wire.deliver();
        Subscription subscription = update.subscribe("/a", delivery -> told.add(delivery.id()));
        wire.deliver(message("/a", Map.of("id", "1")));
        subscription.unsubscribe();
        waiting.forEach(Runnable::run);
        wire.deliver(); // this connect may have been sent before
        wire.deliver();
        assertEquals(List.of(), told);
        assertEquals(List.of(ok("1")), wire.statuses);
    }

    @Test
    void aCopyOfAMessageWhoseTurnHasNotComeIsHeardOnce() throws Exception {
        List<Runnable> waiting = new ArrayList<>();
        UpdateExtension update = UpdateExtension.addTo(client, new UpdateOptions().executor(waiting::add));
        client.handshake();
        wire.deliver();
        update.subscribe("/a", delivery -> told.add(delivery.redeliver()));
        wire.deliver(message("/a", Map.of("id", "1")));
        wire.deliver(message("/a", Map.of("id", "1", "redeliver", 1)));
        waiting.forEach(Runnable::run);
        wire.deliver(); // this connect may have been sent before
        wire.deliver();
        assertEquals(List.of(1), told);
        assertEquals(List.of(ok("1")), wire.statuses);
    }

    @Test
    void aStoppedExtensionLeavesWhatComesOpen() throws Exception {
        UpdateExtension update = open(new UpdateOptions());
        CompletableFuture<Void> done = new CompletableFuture<>();
        update.subscribeAsync("/a", delivery -> {
            told.add(delivery.id());
            return done;
        });
        wire.deliver(message("/a", Map.of("id", "1")));
        assertFalse(update.stop(Duration.ofMillis(1)));
        wire.deliver(message("/a", Map.of("id", "2")));
        done.complete(null);
        wire.deliver();
        wire.deliver();
        assertTrue(update.stop(Duration.ZERO.plusMillis(1)));
        assertEquals(List.of("1"), told);
        assertEquals(List.of(ok("1")), wire.statuses);
    }

    @Test
    void anInterruptOfOneListenerIsNotForTheNext() throws Exception {
        UpdateExtension update = UpdateExtension.addTo(client);
        client.handshake();
        wire.deliver();
        CountDownLatch bothWait = new CountDownLatch(1);
        CountDownLatch bothRan = new CountDownLatch(2);
        update.subscribe("/a", delivery -> {
            bothRan.countDown();
            assertTrue(bothWait.await(20, TimeUnit.SECONDS));
            if (delivery.id().equals("1")) {
                throw new InterruptedException();
            }
        });
        wire.deliver(message("/a", Map.of("id", "1")), message("/a", Map.of("id", "2")));
        bothWait.countDown();
        assertTrue(bothRan.await(20, TimeUnit.SECONDS));
        while (wire.statuses.size() < 2) {
            wire.deliver(); // a connect may have been sent before both had ended
        }
        assertEquals(List.of("1", "2"), wire.statuses.stream().map(each -> Ext.fields(each).get("id")).toList());
        assertEquals(ok("2"), wire.statuses.get(1));
        assertEquals("user.update.internalError", Ext.fields(wire.statuses.get(0)).get("errorCode"));
    }
}

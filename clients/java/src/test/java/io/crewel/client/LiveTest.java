package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.TransportListener;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.io.TempDir;

/** What the extensions do with a real server. */
class LiveTest {
    static final long LIMIT_S = 30;

    @TempDir
    static Path directory;

    private static Server server;
    private final List<Person> people = new ArrayList<>();
    private final BlockingQueue<Delivery> heard = new LinkedBlockingQueue<>();
    private String channel;

    @BeforeAll
    static void serve() throws Exception {
        server = new Server(directory);
    }

    @AfterAll
    static void end() throws Exception {
        server.close();
    }

    @BeforeEach
    void name(TestInfo test) {
        channel = "/" + test.getTestMethod().orElseThrow().getName();
    }

    @AfterEach
    void close() throws Exception {
        for (Person person : people) {
            person.close();
        }
    }

    private Person person() throws Exception {
        Person person = new Person(server);
        people.add(person);
        return person;
    }

    private Publisher publisher() throws Exception {
        return new Publisher(person().open(reply -> { }).client);
    }

    private String publish(Publisher publisher, Object data) throws Exception {
        return publisher.publish(channel, data, PublishOptions.persistent()).get(LIMIT_S, TimeUnit.SECONDS);
    }

    private void assertHeard(Object... data) throws InterruptedException {
        for (Object each : data) {
            Delivery delivery = heard.poll(LIMIT_S, TimeUnit.SECONDS);
            assertEquals(each, delivery == null ? "nothing" : delivery.data());
        }
    }

    /** The codes and words of the dead letters of this test. */
    private List<String> letters(int number) throws Exception {
        for (long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);;) {
            List<String> found = new ArrayList<>();
            for (Object letter : Ext.list(server.admin("GET", "/dead-letters?channel=" + channel).get("letters"))) {
                found.add(Ext.fields(letter).get("errorCode") + " " + Ext.fields(letter).get("reason"));
            }
            if (found.size() >= number || System.nanoTime() > deadline) {
                return found;
            }
        }
    }

    @Test
    void aRepeatWithTheSameKeyDeliversNothing() throws Exception {
        Person receiver = person();
        UpdateExtension update = UpdateExtension.addTo(receiver.client);
        receiver.open(reply -> update.subscribe(channel, heard::add));
        Person shop = person();
        SessionExtension.addTo(shop.client, new SessionOptions().name("shop/1"));
        Publisher publisher = new Publisher(shop.open(reply -> { }).client);
        PublishOptions options = PublishOptions.persistent().key("order-17").priority(9).clientProperties(Map.of("shop", 3));
        String first = publisher.publish(channel, "once", options).get(LIMIT_S, TimeUnit.SECONDS);
        assertEquals(first, publisher.publish(channel, "once", options).get(LIMIT_S, TimeUnit.SECONDS));
        publish(publisher, "another");
        Delivery delivery = heard.poll(LIMIT_S, TimeUnit.SECONDS);
        assertNotNull(delivery);
        assertEquals("once", delivery.data());
        assertEquals(first, delivery.id());
        assertEquals(9, delivery.priority());
        assertEquals(3L, delivery.clientProperties().get("shop"));
        assertEquals(channel, delivery.subscription());
        assertEquals("client/shop/1", delivery.sender());
        assertTrue(delivery.isPersistent());
        assertTrue(delivery.rcvTimestamp() > 0);
        assertHeard("another");
    }

    @Test
    void aRefusedPublishSaysWhy() throws Exception {
        Publisher publisher = publisher();
        PublishOptions wrong = PublishOptions.persistent().field("colour", "red");
        ExecutionException failure = assertThrows(ExecutionException.class, () -> publisher.publish(channel, 1, wrong).get());
        PublishException refused = assertInstanceOf(PublishException.class, failure.getCause());
        assertEquals("user.illegalArgument", refused.errorCode());
        assertTrue(refused.isRefused());
    }

    private static PublishException refusal(CompletableFuture<String> published) {
        ExecutionException failure = assertThrows(ExecutionException.class, () -> published.get(LIMIT_S / 2, TimeUnit.SECONDS));
        return assertInstanceOf(PublishException.class, failure.getCause());
    }

    @Test
    void whatTheServerNeverTakesIsRefusedAtOnceAndByName() throws Exception {
        Object deep = nested(70);
        Map<Object, String> reasons = Map.of(
            "x".repeat(100_000), "user.maxSizeExceed the message is larger than bayeux.max_message_bytes of the server",
            deep, "user.illegalArgument the server cannot read the message (400), which probably is nested deeper than "
                + "bayeux.max_depth",
            Map.of("price", List.of(1, Double.NaN)), "user.illegalArgument data.price[1] is NaN, which JSON cannot represent",
            "x".repeat(2_000_000), "user.maxSizeExceed Max send Bayeux message size 1048576 exceeded: an option of the client, "
                + "maxSendBayeuxMessageSize",
            "half \ud83d", "user.illegalArgument data is text that is not valid Unicode, which JSON cannot represent"
        );
        Person shop = person().open(reply -> { });
        Publisher publisher = new Publisher(shop.client);
        AtomicInteger requests = new AtomicInteger();
        shop.client.addTransportListener(new TransportListener() {
            @Override
            public void onSending(List<? extends Message> messages) {
                requests.addAndGet(messages.get(0).isMeta() ? 0 : 1);
            }
        });
        for (Map.Entry<Object, String> each : reasons.entrySet()) {
            PublishException refused = refusal(publisher.publish(channel, each.getKey(), PublishOptions.persistent()));
            assertEquals(each.getValue(), refused.errorCode() + refused.getMessage().replaceFirst(channel + ":", ""));
            assertTrue(refused.isRefused());
        }
        assertEquals(2, requests.get(), "each of those that JSON can represent was sent once");
        assertNotNull(publish(publisher, "next"));
    }

    private static Object nested(int levels) {
        Object data = 1;
        for (int level = 0; level < levels; level++) {
            data = List.of(data);
        }
        return data;
    }

    @Test
    void whatIsSentTogetherIsNotRefusedForTheSizeOfAllOrForAnotherMessage() throws Exception {
        Person shop = person();
        Publisher publisher = new Publisher(shop.client);
        shop.client.handshake();
        List<CompletableFuture<String>> published = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            published.add(publisher.publish(channel, "x".repeat(1000), PublishOptions.persistent()));
        }
        for (CompletableFuture<String> each : published) {
            assertNotNull(each.get(LIMIT_S, TimeUnit.SECONDS));
        }
        List<CompletableFuture<String>> batch = new ArrayList<>();
        shop.client.batch(() -> {
            batch.add(publisher.publish(channel, "fine", new PublishOptions()));
            batch.add(publisher.publish(channel, nested(70), new PublishOptions()));
        });
        batch.get(0).get(LIMIT_S, TimeUnit.SECONDS);
        assertTrue(refusal(batch.get(1)).isRefused());
    }

    @Test
    void anAnswerIsNotRefusedForAnotherOneOfItsBatch() throws Exception {
        Person server = person();
        RequestExtension responder = RequestExtension.addTo(server.client);
        BlockingQueue<CompletableFuture<Object>> asked = new LinkedBlockingQueue<>();
        server.open(reply -> responder.reply(channel, request -> {
            CompletableFuture<Object> answer = new CompletableFuture<>();
            asked.add(answer);
            return answer;
        }));
        Person person = person();
        RequestExtension requests = RequestExtension.addTo(person.client);
        person.open(reply -> { });
        CompletableFuture<Message> fine = requests.request(channel, 1, Duration.ofSeconds(LIMIT_S));
        CompletableFuture<Object> first = asked.poll(LIMIT_S, TimeUnit.SECONDS);
        CompletableFuture<Message> deep = requests.request(channel, 2, Duration.ofSeconds(LIMIT_S));
        CompletableFuture<Object> second = asked.poll(LIMIT_S, TimeUnit.SECONDS);
        server.client.batch(() -> {
            first.complete("fine");
            second.complete(nested(70));
        });
        assertEquals("fine", fine.get(LIMIT_S, TimeUnit.SECONDS).getData());
        ExecutionException failure = assertThrows(ExecutionException.class, () -> deep.get(LIMIT_S, TimeUnit.SECONDS));
        assertInstanceOf(ErrorAnswerException.class, failure.getCause());
    }

    @Test
    void dataThatContainsItselfTwiceIsRefusedAtOnce() throws Exception {
        List<Object> data = new ArrayList<>();
        data.add(data);
        data.add(data);
        PublishException refused = refusal(publisher().publish(channel, data, PublishOptions.persistent()));
        assertTrue(refused.getMessage().contains("data[0] contains itself"), refused.getMessage());
    }

    @Test
    void aPublisherWithoutASessionSaysWhy() throws Exception {
        Person first = person();
        SessionExtension.addTo(first.client, new SessionOptions().name("taken/1"));
        first.open(reply -> { });
        Person second = person();
        SessionExtension.addTo(second.client, new SessionOptions().name("taken/1"));
        Publisher publisher = new Publisher(second.client);
        second.client.handshake();
        assertTrue(second.client.waitFor(TimeUnit.SECONDS.toMillis(LIMIT_S), BayeuxClient.State.DISCONNECTED));
        PublishException failed = refusal(publisher.publish(channel, 1, PublishOptions.persistent()));
        assertTrue(failed.getMessage().contains("user.configuration.identicalClient"), failed.getMessage());
        assertTrue(failed.isRefused(), "nothing was sent");
    }

    @Test
    void aMessageToNobodyIsRefused() throws Exception {
        PublishOptions options = PublishOptions.persistent().to("client/nobody");
        CompletableFuture<String> published = publisher().publish(channel, 1, options);
        ExecutionException failure = assertThrows(ExecutionException.class, published::get);
        assertEquals("user.ptp.unknownDestination", ((PublishException) failure.getCause()).errorCode());
    }

    @Test
    void anErrorIsADeadLetterAndTheNextMessageIsHeard() throws Exception {
        Person receiver = person();
        UpdateExtension update = UpdateExtension.addTo(receiver.client);
        receiver.open(reply -> update.subscribe(channel, delivery -> {
            heard.add(delivery);
            if (delivery.data().equals("bad")) {
                throw UpdateException.reject("I don't want this");
            }
        }));
        Publisher publisher = publisher();
        publish(publisher, "bad");
        publish(publisher, "good");
        assertHeard("bad", "good");
        assertEquals(List.of("user.update.error I don't want this"), letters(1));
    }

    @Test
    void anyOtherExceptionIsAnInternalError() throws Exception {
        Person receiver = person();
        UpdateExtension update = UpdateExtension.addTo(receiver.client);
        receiver.open(reply -> update.subscribeAsync(channel, delivery ->
            CompletableFuture.runAsync(() -> Integer.parseInt("seven"))));
        publish(publisher(), 1);
        assertEquals(List.of("user.update.internalError For input string: \"seven\""), letters(1));
    }

    @Test
    void aHeldSessionGoesOnWhenAnOperatorLetsIt() throws Exception {
        Person receiver = person();
        SessionExtension.addTo(receiver.client, new SessionOptions().name("printer/1"));
        UpdateExtension update = UpdateExtension.addTo(receiver.client);
        AtomicInteger paper = new AtomicInteger();
        receiver.open(reply -> update.subscribe(channel, delivery -> {
            heard.add(delivery);
            if (paper.getAndIncrement() == 0) {
                throw UpdateException.hold("no paper");
            }
        }));
        Publisher publisher = publisher();
        publish(publisher, 1L);
        assertHeard(1L);
        while (!server.admin("GET", "/sessions/printer/1").toString().contains("no paper")) {
            Thread.onSpinWait(); // until the server has the status
        }
        publish(publisher, 2L);
        assertNull(heard.poll(200, TimeUnit.MILLISECONDS));
        server.admin("POST", "/sessions/printer/1/activate");
        assertHeard(1L, 2L);
    }

    @Test
    void aFailedReceiverGetsTheMessageAgainLater() throws Exception {
        Person receiver = person();
        UpdateOptions options = new UpdateOptions().retries(3).delay(Duration.ofMillis(50));
        UpdateExtension update = UpdateExtension.addTo(receiver.client, options);
        receiver.open(reply -> update.subscribe(channel, delivery -> {
            heard.add(delivery);
            if (delivery.data().equals(2L)) {
                throw new IllegalStateException("no such order");
            }
            if (delivery.redeliver() == 0) {
                throw UpdateException.retry("the database is down");
            }
        }));
        Publisher publisher = publisher();
        publish(publisher, 1L);
        assertHeard(1L, 1L);
        publish(publisher, 2L);
        // The server receives the outcome of the first message before that of the second one.
        assertEquals(List.of("user.update.internalError no such order"), letters(1));
    }

    @Test
    void withMaxOpenMessagesComeOneAtATime() throws Exception {
        Person receiver = person();
        UpdateExtension update = UpdateExtension.addTo(receiver.client, new UpdateOptions().maxOpen(1));
        BlockingQueue<CompletableFuture<Void>> open = new LinkedBlockingQueue<>();
        receiver.open(reply -> update.subscribeAsync(channel, delivery -> {
            CompletableFuture<Void> done = new CompletableFuture<>();
            open.add(done);
            heard.add(delivery);
            return done;
        }));
        Publisher publisher = publisher();
        for (long number = 1; number <= 4; number++) {
            publish(publisher, number);
        }
        for (long number = 1; number <= 4; number++) {
            assertHeard(number);
            assertNull(heard.poll(100, TimeUnit.MILLISECONDS));
            open.take().complete(null);
        }
    }

    @Test
    void theNextProcessTakesTheSessionOverWithItsQueue() throws Exception {
        Path file = directory.resolve("joe.resume");
        SessionOptions options = new SessionOptions().name("joe/1").persistent().resumeFile(file);
        Person first = person();
        SessionExtension session = SessionExtension.addTo(first.client, options);
        UpdateExtension update = UpdateExtension.addTo(first.client);
        first.open(reply -> update.subscribe(channel, heard::add));
        assertFalse(session.isReconnected());
        assertTrue(session.name().endsWith("client/joe/1"), session.name());
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
        Publisher publisher = publisher();
        publish(publisher, "before");
        assertHeard("before");
        assertTrue(update.stop(Duration.ofSeconds(LIMIT_S)));
        first.leave();
        publish(publisher, "while joe is away");

        Person second = person();
        SessionExtension resumed = SessionExtension.addTo(second.client, options);
        UpdateExtension next = UpdateExtension.addTo(second.client);
        second.open(reply -> next.subscribe(channel, heard::add));
        assertTrue(resumed.isReconnected());
        assertHeard("while joe is away");
    }

    @Test
    void aNameThatIsInUseIsRefusedAndOneThatWasLeftIsFreeSoon() throws Exception {
        SessionOptions options = new SessionOptions().name("ann/1");
        Person first = person();
        SessionExtension.addTo(first.client, options);
        first.open(reply -> { });
        Person second = person();
        SessionExtension refused = SessionExtension.addTo(second.client, options);
        second.client.handshake();
        assertTrue(second.client.waitFor(TimeUnit.SECONDS.toMillis(LIMIT_S), BayeuxClient.State.DISCONNECTED));
        assertEquals(Refusal.IDENTICAL_CLIENT, refused.refusal().errorCode());
        assertTrue(refused.refusal().isFinal());
        PublishException unsent = refusal(new Publisher(second.client).publish(channel, 1, PublishOptions.persistent()));
        assertEquals(Refusal.IDENTICAL_CLIENT, unsent.errorCode());
        assertTrue(unsent.isRefused());
        assertTrue(unsent.getMessage().contains("the handshake was not successful"), unsent.getMessage());
        first.leave();
        Person third = person();
        SessionExtension session = SessionExtension.addTo(third.client, options);
        third.open(reply -> { });
        assertTrue(session.isReconnected());
        assertNull(session.refusal());
    }

    @Test
    void aSecretThatDoesNotHoldAnyMoreIsForgotten() throws Exception {
        Path file = directory.resolve("stale.resume");
        Files.writeString(file, "a-secret-of-nobody\n");
        Person person = person();
        SessionExtension session = SessionExtension.addTo(person.client, new SessionOptions().name("ann/2").resumeFile(file));
        person.open(reply -> { });
        assertEquals("client/ann/2", session.name().replaceFirst("^/node/[^/]+/", ""));
        assertFalse(Files.readString(file).contains("nobody"));
    }

    @Test
    void whatWasNotBegunWhenAWorkerStopsIsHeardByTheNext() throws Exception {
        Path file = directory.resolve("stopping.resume");
        SessionOptions options = new SessionOptions().name("stopping/1").persistent().resumeFile(file);
        Person first = person();
        SessionExtension.addTo(first.client, options);
        UpdateExtension update = UpdateExtension.addTo(first.client);
        Semaphore isBusy = new Semaphore(0);
        CountDownLatch begun = new CountDownLatch(1);
        first.open(reply -> update.subscribe(channel, delivery -> {
            begun.countDown();
            isBusy.acquire();
            heard.add(delivery);
        }));
        Publisher publisher = publisher();
        publish(publisher, 1L);
        publish(publisher, 2L);
        assertTrue(begun.await(LIMIT_S, TimeUnit.SECONDS));
        assertFalse(update.stop(Duration.ofMillis(10)));
        isBusy.release(2);
        assertTrue(update.stop(Duration.ofSeconds(LIMIT_S)));
        assertHeard(1L);
        first.leave();
        Person second = person();
        SessionExtension.addTo(second.client, options);
        UpdateExtension next = UpdateExtension.addTo(second.client);
        second.open(reply -> next.subscribe(channel, heard::add));
        assertHeard(2L);
        publish(publisher, 3L);
        assertHeard(3L);
    }

    @Test
    void theLastStatusesAreToldBeforeTheGoodbye() throws Exception {
        Person receiver = person();
        CountDownLatch hasReturned = new CountDownLatch(1);
        UpdateExtension update = UpdateExtension.addTo(receiver.client, new UpdateOptions().executor(task -> {
            task.run();
            hasReturned.countDown();
        }));
        CompletableFuture<Void> decided = new CompletableFuture<>();
        receiver.open(reply -> update.subscribeAsync(channel, delivery -> {
            heard.add(delivery);
            return decided;
        }));
        publish(publisher(), 1L);
        assertHeard(1L);
        assertTrue(hasReturned.await(LIMIT_S, TimeUnit.SECONDS));
        decided.completeExceptionally(UpdateException.reject("the last word"));
        receiver.client.disconnect();
        assertTrue(receiver.client.waitFor(TimeUnit.SECONDS.toMillis(LIMIT_S), BayeuxClient.State.DISCONNECTED));
        assertEquals(List.of("user.update.error the last word"), letters(1));
    }

    @Test
    void aMessageWithoutAListenerGoesToTheFirstThatComes() throws Exception {
        Person receiver = person();
        SessionExtension.addTo(receiver.client, new SessionOptions().name("late/1"));
        UpdateExtension update = UpdateExtension.addTo(receiver.client);
        receiver.open(reply -> { });
        Publisher publisher = publisher();
        publisher.publish(channel, "to late", PublishOptions.persistent().to("client/late/1")).get(LIMIT_S, TimeUnit.SECONDS);
        while (update.unclaimed() == 0) {
            Thread.onSpinWait();
        }
        Subscription listening = update.listen(channel, heard::add);
        Delivery delivery = heard.poll(LIMIT_S, TimeUnit.SECONDS);
        assertNotNull(delivery);
        assertTrue(delivery.isAddressed());
        assertEquals(0, update.unclaimed());
        listening.unsubscribe();
        assertTrue(update.stop(Duration.ofSeconds(LIMIT_S)));
    }

    @Test
    void requestsAreAnswered() throws Exception {
        Person service = person();
        UpdateExtension.addTo(service.client);
        RequestExtension responder = RequestExtension.addTo(service.client);
        service.open(reply -> responder.reply(channel, request -> {
            if (!(request.data() instanceof Long number)) {
                throw new ErrorAnswerException("user.illegalArgument", "a number is needed");
            }
            if (number < 0) {
                return number == -1 ? Double.NaN : "x".repeat(100_000);
            }
            return number == 0 ? Integer.parseInt("") : CompletableFuture.completedFuture(number * number);
        }));
        Person asking = person();
        RequestExtension requests = RequestExtension.addTo(asking.client);
        // There is no session yet.
        CompletableFuture<Message> early = requests.request(channel, 7L, Duration.ofSeconds(LIMIT_S));
        asking.open(reply -> { });
        assertEquals(49L, early.get().getData());
        Message answer = requests.request(channel, 3L, Duration.ofSeconds(LIMIT_S)).get();
        assertEquals(9L, answer.getData());
        assertTrue(answer.getChannel().matches("/ret/[^/]+/1[0-9]{6}"), answer.getChannel());
        assertEquals("user.illegalArgument", failure(requests.request(channel, "x", Duration.ofSeconds(LIMIT_S))).errorCode());
        for (long number : List.of(0L, -1L, -2L)) {
            assertEquals("internal.unknown", failure(requests.request(channel, number, Duration.ofSeconds(LIMIT_S))).errorCode());
        }
    }

    private static ErrorAnswerException failure(CompletableFuture<Message> answer) {
        return assertInstanceOf(ErrorAnswerException.class, assertThrows(ExecutionException.class, answer::get).getCause());
    }

    @Test
    void aListenerMayWaitForTheAnswerToARequestOfItsOwn() throws Exception {
        Person service = person();
        RequestExtension responder = RequestExtension.addTo(service.client);
        service.open(reply -> responder.reply(channel + "/double", request -> 2 * (Long) request.data())); // without update
        Person worker = person();
        UpdateExtension update = UpdateExtension.addTo(worker.client, new UpdateOptions().maxOpen(1));
        RequestExtension requests = RequestExtension.addTo(worker.client);
        BlockingQueue<Object> answers = new LinkedBlockingQueue<>();
        worker.open(reply -> update.subscribe(channel, delivery ->
            answers.add(requests.request(channel + "/double", delivery.data(), Duration.ofSeconds(LIMIT_S)).get().getData())));
        Publisher publisher = publisher();
        publish(publisher, 1L);
        publish(publisher, 2L);
        assertEquals(2L, answers.poll(LIMIT_S, TimeUnit.SECONDS));
        assertEquals(4L, answers.poll(LIMIT_S, TimeUnit.SECONDS));
    }

    @Test
    void withoutAnAnswerARequestTimesOut() throws Exception {
        Person asking = person();
        RequestExtension requests = RequestExtension.addTo(asking.client);
        asking.open(reply -> { });
        CompletableFuture<Message> answer = requests.request(channel, 1L, Duration.ofMillis(50));
        assertInstanceOf(AnswerTimeoutException.class, assertThrows(ExecutionException.class, answer::get).getCause());
    }
}

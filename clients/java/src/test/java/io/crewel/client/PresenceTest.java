package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.io.TempDir;

/** The presence of a channel, with a real server. */
class PresenceTest {
    @TempDir
    static Path directory;

    private static Server server;
    private final List<Person> people = new ArrayList<>();
    private String channel;

    @BeforeAll
    static void serve() throws Exception {
        server = new Server(directory, "limits.max_presence_bytes=30");
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

    /** The presence of the channel as a session with this name sees it. */
    private Presence follow(String name, boolean hasStatuses) throws Exception {
        Person person = new Person(server);
        people.add(person);
        SessionExtension.addTo(person.client, new SessionOptions().name(name));
        if (hasStatuses) {
            UpdateExtension.addTo(person.client);
        }
        PresenceExtension presences = PresenceExtension.addTo(person.client);
        person.open(reply -> { });
        return presences.follow(channel);
    }

    private static BlockingQueue<String> changes(Presence presence) {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        presence.onChange(change -> seen.add(change.event() + " " + change.member().id() + " " + change.member().data()));
        return seen;
    }

    private static void assertNext(BlockingQueue<String> seen, String... texts) throws InterruptedException {
        for (String text : texts) {
            assertEquals(text, seen.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS));
        }
    }

    @Test
    void membersJoinChangeAndLeave() throws Exception {
        Presence joe = follow("joe/1", false);
        joe.enter(Map.of("name", "Joe")).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertEquals("joe", joe.id());
        assertEquals(List.of(new Member("joe", 1, Map.of("name", "Joe"))), joe.members());
        BlockingQueue<String> seen = changes(joe);
        Presence ann = follow("ann/1", true);
        ann.ready().get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertNull(ann.id());
        assertEquals(joe.members(), ann.members());
        ann.enter(1).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        ann.enter(2).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        ann.leave().get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertNext(seen, "JOIN ann 1", "UPDATE ann 2", "LEAVE ann 2");
        ann.enter(3).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        ann.close();
        assertNext(seen, "JOIN ann 3", "LEAVE ann 3");
    }

    @Test
    void aKilledServerGetsItsMembersBack() throws Exception {
        Presence joe = follow("joe/2", true);
        Presence ann = follow("ann/2", false);
        for (Presence each : List.of(joe, ann)) {
            each.enter(null).get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        }
        server.kill();
        server.start();
        Presence sue = follow("sue/2", false);
        BlockingQueue<String> seen = changes(sue);
        sue.ready().get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        while (sue.members().size() < 2) {
            assertEquals("JOIN", String.valueOf(seen.poll(LiveTest.LIMIT_S, TimeUnit.SECONDS)).substring(0, 4));
        }
        for (Presence each : List.of(joe, ann, sue)) {
            each.enter("again").get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        }
        BlockingQueue<String> left = changes(joe);
        sue.close();
        while (!left.take().equals("LEAVE sue again")) { }
        assertEquals(2, joe.members().size());
    }

    @Test
    void whatTheServerRefusesFails() throws Exception {
        Presence joe = follow("joe/3", false);
        ExecutionException large = assertThrows(ExecutionException.class, () -> joe.enter("x".repeat(40)).get());
        assertEquals("user.illegalArgument", ((ErrorAnswerException) large.getCause()).errorCode());
        joe.enter("small").get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertEquals("joe", joe.id());
        joe.close();
        ExecutionException closed = assertThrows(ExecutionException.class, () -> joe.enter("small").get());
        assertEquals(IllegalStateException.class, closed.getCause().getClass());
        ExecutionException fault = assertThrows(ExecutionException.class, () -> joe.enter(Double.NaN).get());
        assertEquals("user.illegalArgument", ((ErrorAnswerException) fault.getCause()).errorCode());
    }

    @Test
    void aChannelIsFollowedOnce() throws Exception {
        Person person = new Person(server);
        people.add(person);
        PresenceExtension presences = PresenceExtension.addTo(person.client);
        Presence before = presences.follow(channel);
        assertThrows(IllegalStateException.class, () -> presences.follow(channel));
        person.open(reply -> { });
        before.enter("early").get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        before.close();
        presences.follow(channel).ready().get(LiveTest.LIMIT_S, TimeUnit.SECONDS);
        assertThrows(IllegalArgumentException.class, () -> presences.follow("room"));
    }
}

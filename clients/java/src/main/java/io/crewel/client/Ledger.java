package io.crewel.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.cometd.bayeux.Message;

/**
 * The messages of one session: in progress, acknowledged (the latest ids), and statuses to send. It does not know the client;
 * the extension's lock guards it.
 */
final class Ledger {
    static final String OK = "OK";
    static final String WORKING = "WORKING";
    static final String UNCLAIMED = "UNCLAIMED";

    final Statuses statuses = new Statuses();
    private final Map<String, Waiting> unclaimed = new LinkedHashMap<>();
    private final Map<String, Handling> atWork = new HashMap<>();
    private final Set<String> done = new LinkedHashSet<>();
    private final int most;

    /** A message that no listener has taken; {@code since} is when its first copy came, by {@link System#nanoTime}. */
    record Waiting(String id, Message message, Handling handling, long since) { }

    Ledger(int most) {
        this.most = most;
    }

    boolean isDone(String id) {
        return done.contains(id);
    }

    /** The message while its listeners process it, or null. */
    Handling handling(String id) {
        return atWork.get(id);
    }

    Collection<Handling> atWork() {
        return new ArrayList<>(atWork.values());
    }

    /** Starts the processing of a message. A copy that arrives meanwhile starts it again. */
    Handling begin(String id, List<Subscription> expected, Runnable changed) {
        done.remove(id);
        Handling[] self = new Handling[1];
        self[0] = new Handling(expected, failure -> {
            atWork.remove(id, self[0]);
            ended(id, failure);
            changed.run();
        });
        atWork.put(id, self[0]);
        return self[0];
    }

    private void ended(String id, Failure failure) {
        if (failure == null) {
            ok(id);
        } else if (!isDone(id)) {
            statuses.put(failure.status(id));
        }
    }

    /** Acknowledges a message, perhaps once more: if the server sent it again, it did not get the status. */
    void ok(String id) {
        done.remove(id);
        done.add(id);
        if (done.size() > most) {
            done.remove(done.iterator().next());
        }
        statuses.put(id, OK);
    }

    // Messages without a listener

    Collection<Waiting> unclaimed() {
        return new ArrayList<>(unclaimed.values());
    }

    int unclaimedCount() {
        return unclaimed.size();
    }

    /** Whether this very message still waits for a listener. */
    boolean isWaiting(Waiting waiting) {
        return unclaimed.get(waiting.id()) == waiting;
    }

    /** Keeps a message until a listener takes it. True if the oldest one had to be forgotten, because there are too many. */
    boolean keep(Waiting waiting) {
        unclaimed.put(waiting.id(), waiting);
        statuses.put(waiting.id(), UNCLAIMED);
        return unclaimed.size() > most && release(unclaimed.keySet().iterator().next()) != null;
    }

    /** Removes and returns a message that no listener has taken; null if it is not there. */
    Waiting release(String id) {
        return unclaimed.remove(id);
    }

    /** Forgets the messages that no listener has taken: their session has ended. */
    void close() {
        unclaimed.clear();
    }
}

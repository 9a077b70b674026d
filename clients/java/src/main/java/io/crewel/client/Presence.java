package io.crewel.client;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The presence of one channel: its members, and what changes, until it is closed. It continues after a lost connection, in each
 * new session and after a restart of the server: it asks for the members again, and enters again if the session was present.
 *
 * <p>The server numbers the changes of a channel: docs/reference/protocol.md says how a client misses none of them.
 */
public final class Presence implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Presence.class);
    private static final String CHANGES = "/__sys__presence"; // stands before the name of a channel in that of its changes
    private static final String SERVICE = "presence";
    private static final long CALL_MS = 10_000;
    private static final long SHORTEST_MS = 500;
    private static final long LONGEST_MS = 10_000;

    private final BayeuxClient client;
    private final String channel;
    private final Runnable forget;
    private final List<Consumer<PresenceChange>> listeners = new CopyOnWriteArrayList<>();
    private volatile List<Member> members = List.of();
    private volatile String id;

    // All else belongs to the tasks of this executor, which run one after another.
    private final Executor executor = new Serial();
    private final Map<String, Member> known = new LinkedHashMap<>();
    private final List<Map<String, Object>> events = new ArrayList<>(); // that came during a call
    private final List<CompletableFuture<Void>> waiting = new ArrayList<>();
    private Wanted wanted; // what to be present with, or null
    private Wanted has; // what the server has of that
    private String epoch = "";
    private long seq;
    private boolean isListed;
    private boolean isSubscribed;
    private boolean isBusy;
    private boolean isClosed;
    private ErrorAnswerException refusal; // of the subscription to the changes, in this session
    private int session; // counts: what an earlier one is answered is of no use
    private long pauseMs = SHORTEST_MS;
    private Runnable unsubscribe = () -> { };

    private record Wanted(Object data) { }

    Presence(BayeuxClient client, String channel, Runnable forget) {
        if (!Objects.requireNonNull(channel).startsWith("/")) {
            throw new IllegalArgumentException("not the name of a channel, such as /room: " + channel);
        }
        this.client = client;
        this.channel = channel;
        this.forget = forget;
    }

    /**
     * Returns the channel.
     *
     * @return its name
     */
    public String channel() {
        return channel;
    }

    /**
     * Returns the members as far as they are known: none before the first answer of the server.
     *
     * @return a list that does not change
     */
    public List<Member> members() {
        return members;
    }

    /**
     * Returns the member that this session is.
     *
     * @return its id; null while the session is not present
     */
    public String id() {
        return id;
    }

    /**
     * Calls a listener with each change. A thread of the extension calls all listeners, one change after another.
     *
     * @param listener called with each change from now on
     * @return ends that when it runs
     */
    public Runnable onChange(Consumer<PresenceChange> listener) {
        Objects.requireNonNull(listener);
        listeners.add(listener);
        return () -> listeners.remove(listener);
    }

    /**
     * Waits until the members are listed.
     *
     * @return completes then, also after a lost connection; fails with an {@link ErrorAnswerException} if the server refuses it
     */
    public CompletableFuture<Void> ready() {
        return ask(() -> { });
    }

    /**
     * Lets the session be present, or replaces its data.
     *
     * @param data what the JSON library of the client can write, or null
     * @return completes when the server has it and the members are listed, also after a lost connection; fails with an {@link
     *     ErrorAnswerException} if the server refuses it
     */
    public CompletableFuture<Void> enter(Object data) {
        String fault = Json.fault("data", data);
        if (fault != null) {
            return CompletableFuture.failedFuture(new ErrorAnswerException(Publisher.ILLEGAL, fault));
        }
        return ask(() -> wanted = new Wanted(data));
    }

    /**
     * Lets the session not be present. The members are listed all the same.
     *
     * @return completes when the server knows it
     */
    public CompletableFuture<Void> leave() {
        return ask(() -> wanted = null);
    }

    /** Leaves, and follows the members no more. */
    @Override
    public void close() {
        forget.run();
        listeners.clear();
        executor.execute(() -> {
            isClosed = true;
            unsubscribe.run();
            if (has != null || wanted != null) {
                client.remoteCall(SERVICE, request("leave", null), reply -> { });
            }
            fail(new IllegalStateException("the presence of " + channel + " is closed"));
        });
    }

    /** There is a session, perhaps another one, whose client knows of no subscription. */
    void begin() {
        executor.execute(() -> {
            if (isClosed) {
                return;
            }
            session++;
            has = null; // the server may have forgotten it, and to enter twice does no harm
            isListed = false;
            isSubscribed = false;
            isBusy = false;
            refusal = null;
            events.clear();
            subscribe();
        });
    }

    // Tasks of the executor

    private CompletableFuture<Void> ask(Runnable change) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        executor.execute(() -> {
            if (isClosed) {
                done.completeExceptionally(new IllegalStateException("the presence of " + channel + " is closed"));
                return;
            }
            change.run();
            if (refusal != null) {
                done.completeExceptionally(refusal);
                return;
            }
            waiting.add(done);
            settle();
        });
        return done;
    }

    private void subscribe() {
        int current = session;
        ClientSession.MessageListener replied = reply -> executor.execute(() -> {
            if (isClosed || current != session) {
                return;
            }
            if (reply.isSuccessful()) {
                isSubscribed = true;
                settle();
            } else if (Refusals.isPassing(reply)) {
                later(this::subscribe);
            } else {
                refusal = refusal(reply);
                fail(refusal);
            }
        });
        unsubscribe.run();
        for (ClientSession.Extension extension : client.getExtensions()) {
            if (extension instanceof UpdateExtension update) {
                unsubscribe = update.subscribe(CHANGES + channel, Map.of(), delivery -> came(delivery.data()), replied)::unsubscribe;
                return;
            }
        }
        ClientSessionChannel changes = client.getChannel(CHANGES + channel);
        ClientSessionChannel.MessageListener listener = (ignored, message) -> came(message.getData());
        unsubscribe = () -> changes.unsubscribe(listener);
        changes.subscribe(listener, replied);
    }

    /** Brings the server what is wanted, then asks for the members: one call at a time. */
    private void settle() {
        if (isBusy || isClosed || !isSubscribed) {
            return;
        }
        if (has != wanted) {
            Wanted next = wanted;
            call(next == null ? "leave" : "enter", next == null ? null : next.data(), answer -> {
                has = next;
                id = next == null ? null : Ext.text(answer.get("id"));
            });
        } else if (!isListed) {
            isListed = true; // what comes from here on is in the list, or behind it
            call("members", null, this::list);
        } else {
            pauseMs = SHORTEST_MS;
            List<CompletableFuture<Void>> done = List.copyOf(waiting);
            waiting.clear();
            done.forEach(each -> each.complete(null));
        }
    }

    private void call(String action, Object data, Consumer<Map<String, Object>> answered) {
        isBusy = true;
        int current = session;
        CompletableFuture<Message> reply = new CompletableFuture<>();
        client.remoteCall(SERVICE, request(action, data), reply::complete);
        reply.completeOnTimeout(null, CALL_MS, TimeUnit.MILLISECONDS).thenAcceptAsync(message -> {
            if (isClosed || current != session) {
                return;
            }
            isBusy = false;
            Map<String, Object> answer = message == null ? Map.of() : Ext.fields(message.getData());
            if (message != null && message.isSuccessful()) {
                answered.accept(answer);
                settle();
            } else if (isRefused(message)) {
                has = wanted; // it is asked again for other data, or in another session
                isListed = false;
                fail(refusal(message));
            } else {
                isListed = false;
                later(this::settle);
            }
            List<Map<String, Object>> missed = List.copyOf(events);
            events.clear();
            missed.forEach(this::take);
        }, executor);
    }

    /** Whether the server refuses a call, or the service does; no reply in time is null. */
    private static boolean isRefused(Message reply) {
        return reply != null
            && (serviceCode(reply) != null || reply.get(Message.ERROR_FIELD) != null && !Refusals.isPassing(reply));
    }

    private static ErrorAnswerException refusal(Message reply) {
        if (serviceCode(reply) != null) {
            String text = Objects.toString(Ext.fields(reply.getData()).get("message"), "");
            return new ErrorAnswerException(serviceCode(reply), text);
        }
        Failure failure = PublishException.failure(reply);
        return new ErrorAnswerException(failure.errorCode(), failure.message());
    }

    private static String serviceCode(Message reply) {
        return Ext.text(Ext.fields(reply.getData()).get("errorCode"));
    }

    private Map<String, Object> request(String action, Object data) {
        Map<String, Object> request = new LinkedHashMap<>();
        request.put("channel", channel);
        request.put("action", action);
        request.put("data", data);
        return request;
    }

    private void later(Runnable task) {
        int current = session;
        Executor delayed = CompletableFuture.delayedExecutor(pauseMs, TimeUnit.MILLISECONDS, executor);
        pauseMs = Math.min(2 * pauseMs, LONGEST_MS);
        delayed.execute(() -> {
            if (current == session) {
                task.run();
            }
        });
    }

    private void fail(RuntimeException failure) {
        List<CompletableFuture<Void>> failed = List.copyOf(waiting);
        waiting.clear();
        failed.forEach(each -> each.completeExceptionally(failure));
    }

    private void came(Object data) {
        executor.execute(() -> take(Ext.fields(data)));
    }

    private void take(Map<String, Object> event) {
        if (isBusy) {
            events.add(event);
            return;
        }
        long next = Ext.whole(event.get("seq"), 0);
        boolean isReset = Boolean.TRUE.equals(event.get("reset"));
        if (isReset || !epoch.equals(event.get("epoch")) || next > seq + 1) {
            has = isReset ? null : has;
            isListed = false;
            settle();
        } else if (next == seq + 1) {
            seq = next;
            for (Object each : Ext.list(event.get("changes"))) {
                Map<String, Object> change = Ext.fields(each);
                if ("leave".equals(change.get("change"))) {
                    left(Ext.text(change.get("id")));
                } else {
                    is(change);
                }
            }
        }
    }

    private void list(Map<String, Object> answer) {
        epoch = Objects.toString(answer.get("epoch"), "");
        seq = Ext.whole(answer.get("seq"), 0);
        Set<String> listed = new HashSet<>();
        for (Object each : Ext.list(answer.get("members"))) {
            listed.add(Ext.text(Ext.fields(each).get("id")));
        }
        List.copyOf(known.keySet()).stream().filter(each -> !listed.contains(each)).forEach(this::left);
        Ext.list(answer.get("members")).forEach(each -> is(Ext.fields(each)));
    }

    private void left(String member) {
        Member gone = known.remove(member);
        if (gone != null) {
            tell(PresenceChange.Event.LEAVE, new Member(gone.id(), 0, gone.data()));
        }
    }

    private void is(Map<String, Object> fields) {
        Member member = new Member(Ext.text(fields.get("id")), Ext.whole(fields.get("sessions"), 0), fields.get("data"));
        Member before = known.put(member.id(), member);
        if (before == null) {
            tell(PresenceChange.Event.JOIN, member);
        } else if (!before.equals(member)) {
            tell(PresenceChange.Event.UPDATE, member);
        }
    }

    private void tell(PresenceChange.Event event, Member member) {
        members = List.copyOf(known.values());
        PresenceChange change = new PresenceChange(event, member);
        for (Consumer<PresenceChange> listener : listeners) {
            try {
                listener.accept(change);
            } catch (RuntimeException failure) {
                LOG.warn("a listener of the presence of {} failed", channel, failure);
            }
        }
    }
}

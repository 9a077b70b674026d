package io.crewel.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.ChannelId;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.Promise;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.cometd.client.ext.AckExtension;
import org.cometd.common.HashMapMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reports to the server whether listeners processed each message: the same statuses as the browser's {@code update.js} reports.
 *
 * <p>A listener acknowledges its message by returning, or by completing the {@link CompletionStage} that it has returned. A
 * listener that throws rejects the message: an {@link UpdateException} with its code, anything else with {@code
 * user.update.internalError}. A message that no listener takes stays open, and goes to the first matching listener that is
 * added.
 *
 * <p>Only listeners that are added here are observed. Those of {@link ClientSessionChannel#subscribe} are called as ever, but
 * report nothing.
 *
 * <p>As always with CometD's client, subscribe after each successful handshake: a handshake forgets the subscriptions of the
 * client.
 */
public final class UpdateExtension implements ClientSession.Extension {
    private static final Logger LOG = LoggerFactory.getLogger(UpdateExtension.class);
    private static final String REPLIES = "/ret/";
    private static final String ERASED = "ERASED";
    private static final long RESUBSCRIBE_MS = 500;

    private final BayeuxClient client;
    private final UpdateOptions options;
    private final Object lock = new Object();
    private final Map<String, List<Subscription>> subscriptions = new HashMap<>();
    private final Set<String> unwanted = new HashSet<>(); // channels that were unsubscribed
    private final StatusSender sender;
    private Boolean knowsAll; // whether all subscriptions of the session were made by this client
    private boolean isStopping;
    private int begun; // listeners that have not finished

    private UpdateExtension(BayeuxClient client, UpdateOptions options) {
        this.client = client;
        this.options = options;
        this.sender = new StatusSender(client, options, lock);
    }

    /**
     * Adds the extension to a client, before its handshake; and CometD's {@link AckExtension}, which it needs, if that is
     * missing.
     *
     * @param client the client
     * @param options what to ask for
     * @return the extension
     */
    public static UpdateExtension addTo(BayeuxClient client, UpdateOptions options) {
        UpdateExtension extension = new UpdateExtension(Objects.requireNonNull(client), Objects.requireNonNull(options));
        if (client.getExtensions().stream().noneMatch(AckExtension.class::isInstance)) {
            client.addExtension(new AckExtension());
        }
        client.addExtension(extension);
        return extension;
    }

    /**
     * Adds the extension with its default options.
     *
     * @param client the client
     * @return the extension
     */
    public static UpdateExtension addTo(BayeuxClient client) {
        return addTo(client, new UpdateOptions());
    }

    /**
     * Returns whether the server accepts statuses from this session.
     *
     * @return whether it does
     */
    public boolean isGranted() {
        return sender.isGranted();
    }

    /**
     * Returns how many messages wait for a listener.
     *
     * @return the number
     */
    public int unclaimed() {
        synchronized (lock) {
            return sender.ledger().unclaimedCount();
        }
    }

    /**
     * Subscribes to a channel or a wildcard.
     *
     * @param channel its name
     * @param listener called with each message
     * @return the subscription
     */
    public Subscription subscribe(String channel, UpdateListener listener) {
        return subscribe(channel, Map.of(), listener, ClientSession.MessageListener.NOOP);
    }

    /**
     * Subscribes to a channel or a wildcard.
     *
     * @param channel its name
     * @param asked fields of {@code ext.subscribe}, such as {@code history}
     * @param listener called with each message
     * @param callback called with the reply of the server
     * @return the subscription
     */
    public Subscription subscribe(
        String channel, Map<String, Object> asked, UpdateListener listener, ClientSession.MessageListener callback
    ) {
        return subscribeAsync(channel, asked, returning(listener), callback);
    }

    /**
     * Subscribes to a channel or a wildcard with a listener that decides later.
     *
     * @param channel its name
     * @param listener called with each message
     * @return the subscription
     */
    public Subscription subscribeAsync(String channel, AsyncUpdateListener listener) {
        return subscribeAsync(channel, Map.of(), listener, ClientSession.MessageListener.NOOP);
    }

    /**
     * Subscribes to a channel or a wildcard with a listener that decides later. If the connection breaks before the reply, the
     * extension subscribes again.
     *
     * @param channel its name
     * @param asked fields of {@code ext.subscribe}, such as {@code history}
     * @param listener called with each message
     * @param callback called with the reply of the server
     * @return the subscription
     */
    public Subscription subscribeAsync(
        String channel, Map<String, Object> asked, AsyncUpdateListener listener, ClientSession.MessageListener callback
    ) {
        Subscription made = new Subscription(this, client.getChannel(channel), false, Objects.requireNonNull(listener));
        add(made);
        ask(made, Map.copyOf(asked), callback);
        handOver(made);
        return made;
    }

    /**
     * Adds a listener for messages of a channel that the session is subscribed to already, or that are addressed to the
     * session. The client sends nothing to the server, and a handshake does not remove it.
     *
     * @param channel the channel or wildcard
     * @param listener called with each message
     * @return the subscription
     */
    public Subscription listen(String channel, UpdateListener listener) {
        Subscription made = new Subscription(this, client.getChannel(channel), true, returning(listener));
        add(made);
        made.target().addListener(made.inner());
        handOver(made);
        return made;
    }

    private static AsyncUpdateListener returning(UpdateListener listener) {
        Objects.requireNonNull(listener);
        return delivery -> {
            listener.update(delivery);
            return null;
        };
    }

    /**
     * Finishes what listeners have begun, and begins nothing else: what comes or waits stays open, and goes to the next client
     * of the session. Call it before a named client goes with {@link BayeuxClient#abort}, which leaves its session at the
     * server.
     *
     * @param limit how long to wait
     * @return whether all listeners have finished, and the server has their statuses
     * @throws InterruptedException if the thread is interrupted
     */
    public boolean stop(Duration limit) throws InterruptedException {
        long deadline = System.nanoTime() + limit.toNanos();
        synchronized (lock) {
            isStopping = true;
            while (begun > 0 || isGranted() && !sender.ledger().statuses.isEmpty()) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    return false;
                }
                lock.wait(left);
            }
            return true;
        }
    }

    /** Whether no message is being processed: none would be processed twice if the server sent all open ones again. */
    boolean isIdle() {
        synchronized (lock) {
            return sender.ledger().atWork().size() == sender.ledger().unclaimedCount();
        }
    }

    /** Whether the server has confirmed all statuses. */
    boolean isConfirmed() {
        synchronized (lock) {
            return sender.ledger().statuses.isEmpty();
        }
    }

    // Subscriptions

    private void add(Subscription made) {
        synchronized (lock) {
            unwanted.remove(made.channel());
            known(made.channel()).add(made);
        }
        handOver(made); // what came earlier goes first; what comes until the client has the listener goes after it
    }

    private List<Subscription> known(String channel) {
        return subscriptions.computeIfAbsent(channel, name -> new ArrayList<>());
    }

    private void ask(Subscription made, Map<String, Object> asked, ClientSession.MessageListener callback) {
        Message.Mutable fields = new HashMapMessage();
        if (!asked.isEmpty()) {
            fields.getExt(true).put("subscribe", asked);
        }
        made.target().subscribe(fields, made.inner(), reply -> {
            if (reply.isSuccessful() || !retries(made, reply, () -> ask(made, asked, callback))) {
                callback.onMessage(reply);
            }
        });
    }

    /** Whether a subscribe that may not have arrived is repeated. One that was refused is over. */
    private boolean retries(Subscription made, Message reply, Runnable again) {
        synchronized (lock) {
            List<Subscription> known = known(made.channel());
            if (!known.contains(made)) {
                return true; // the application has ended it, or will subscribe again after the handshake
            }
            if (!reply.containsKey("failure") || client.isDisconnected()) {
                known.remove(made);
                return false;
            }
        }
        StatusSender.later(RESUBSCRIBE_MS, () -> askAgain(made, again));
        return true;
    }

    private void askAgain(Subscription made, Runnable again) {
        List<Subscription> others;
        synchronized (lock) {
            if (!known(made.channel()).contains(made)) {
                return;
            }
            others = known(made.channel()).stream().filter(each -> each != made && !each.isLocal() && each.isHeard()).toList();
        }
        // The client sends a subscribe for the first listener of a channel only.
        others.forEach(other -> other.target().unsubscribe(other.inner()));
        again.run();
        handOver(made); // the client had no listener meanwhile
        others.forEach(other -> {
            other.target().subscribe(other.inner());
            handOver(other);
        });
    }

    void end(Subscription ended) {
        synchronized (lock) {
            ended.setUnwanted();
            known(ended.channel()).remove(ended);
            if (!ended.isLocal()) {
                unwanted.add(ended.channel());
            }
            sender.ledger().atWork().forEach(handling -> handling.forsake(ended));
        }
        if (ended.isLocal()) {
            ended.target().removeListener(ended.inner());
        } else {
            ended.target().unsubscribe(ended.inner());
        }
    }

    // The client's side

    @Override
    public void outgoing(ClientSession session, Message.Mutable message, Promise<Boolean> promise) {
        if (Channel.META_DISCONNECT.equals(message.getChannel()) && isGranted()) {
            sender.tellBeforeGoing(() -> promise.succeed(true));
        } else {
            ClientSession.Extension.super.outgoing(session, message, promise);
        }
    }

    @Override
    public boolean sendMeta(ClientSession session, Message.Mutable message) {
        synchronized (lock) {
            if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
                sender.handshakes();
                subscriptions.values().forEach(each -> each.removeIf(made -> !made.isLocal())); // as the client does
                Ext.put(message, "session", options.session(Ext.part(message, "session")));
            } else if (Channel.META_CONNECT.equals(message.getChannel())) {
                sender.connects(message);
            }
        }
        return true;
    }

    @Override
    public boolean rcvMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
            negotiated(message);
        } else if (Channel.META_CONNECT.equals(message.getChannel())) {
            sender.connected(message);
        } else if (Channel.META_SUBSCRIBE.equals(message.getChannel()) && message.getId() == null && !message.isSuccessful()) {
            return ended(message);
        }
        return true;
    }

    @Override
    public boolean rcv(ClientSession session, Message.Mutable message) {
        if (sender.complains(message)) {
            return true;
        }
        synchronized (lock) {
            return !isGranted() || message.isPublishReply() || idOf(message) == null || delivered(message);
        }
    }

    private void negotiated(Message reply) {
        if (!reply.isSuccessful()) {
            return;
        }
        Map<String, Object> told = Ext.part(reply, "session");
        boolean isGranted = Boolean.TRUE.equals(told.get("update"));
        boolean isReconnected = isGranted && Boolean.TRUE.equals(told.get("reconnected"));
        synchronized (lock) {
            unwanted.clear(); // the application subscribes again
            knowsAll = !isReconnected || Boolean.TRUE.equals(knowsAll);
            sender.negotiated(isGranted, isReconnected, Ext.whole(told.get("maxMessageBytes"), Integer.MAX_VALUE));
        }
    }

    /** Whether the client calls its listeners with a message. */
    private boolean delivered(Message message) {
        String id = idOf(message);
        if (sender.ledger().isDone(id) && !Boolean.TRUE.equals(Ext.part(message, "update").get("initial"))) {
            sender.ledger().ok(id);
            sender.changed();
            return false;
        }
        Ledger.Waiting earlier = sender.ledger().release(id);
        List<Subscription> expected = listeners(message.getChannel());
        Handling handling = sender.ledger().begin(id, expected, sender::changed);
        if (expected.isEmpty()) {
            if (isOfNoInterest(message)) {
                handling.end();
            } else {
                keep(message, handling, earlier == null ? System.nanoTime() : earlier.since());
            }
        }
        return true;
    }

    /** The listeners that the client is about to call. */
    private List<Subscription> listeners(String channel) {
        List<Subscription> found = new ArrayList<>();
        for (String name : new ChannelId(channel).getAllIds()) {
            subscriptions.getOrDefault(name, List.of()).stream().filter(Subscription::isHeard).forEach(found::add);
        }
        return found;
    }

    /** The server has ended a subscription. Its notice is acknowledged when the application has received it. */
    private boolean ended(Message message) {
        String id = idOf(message);
        Ledger current;
        synchronized (lock) {
            current = sender.ledger();
            if (isGranted() && id != null && current.isDone(id)) {
                current.ok(id);
                sender.changed();
                return false;
            }
        }
        Map<String, Object> told = Ext.part(message, "subscribe");
        String name = String.valueOf(message.get(Message.SUBSCRIPTION_FIELD));
        EndedSubscription notice = new EndedSubscription(name, Ext.text(told.get("errorCode")), Ext.text(told.get("message")));
        LOG.error("the server has ended the subscription to {}: {}", name, told.get("message"));
        options.executor.execute(() -> {
            client.getChannel(name).unsubscribe(); // else the client would not send the next subscribe: it is not the first
            StatusSender.call(() -> options.onEnded.accept(notice));
            synchronized (lock) {
                if (isGranted() && id != null) {
                    current.ok(id);
                    sender.changed();
                }
            }
        });
        return true;
    }

    // Messages without a listener

    /** Whether a message needs no listener: a notice, a late answer, or a message of an ended subscription. */
    private boolean isOfNoInterest(Message message) {
        Map<String, Object> update = Ext.part(message, "update");
        String channel = message.getChannel();
        String told = Ext.text(update.get("subscription"));
        String subscription = told == null ? channel : told;
        return ERASED.equals(update.get("state"))
            || channel.startsWith(REPLIES)
            || unwanted.contains(subscription)
            // The server names the subscription of a message; if that has ended, the channel.
            || Boolean.TRUE.equals(knowsAll) && subscription.equals(channel)
                && new ChannelId(channel).getAllIds().stream().anyMatch(unwanted::contains);
    }

    private void keep(Message message, Handling handling, long since) {
        long left = options.unclaimed == null ? 0 : options.unclaimed.toMillis() - (System.nanoTime() - since) / 1_000_000;
        if (options.unclaimed != null && left <= 0) {
            bury(handling);
            return;
        }
        if (sender.ledger().unclaimed().stream().noneMatch(each -> each.message().getChannel().equals(message.getChannel()))) {
            LOG.warn("no listener takes the messages of {}; they stay open until one does", message.getChannel());
        }
        Ledger kept = sender.ledger();
        Ledger.Waiting waiting = new Ledger.Waiting(idOf(message), message, handling, since);
        if (options.unclaimed != null) {
            StatusSender.later(left, () -> {
                synchronized (lock) {
                    if (kept.isWaiting(waiting)) {
                        kept.release(waiting.id());
                        bury(handling);
                    }
                }
            });
        }
        if (kept.keep(waiting)) {
            LOG.error("too many messages without a listener, the oldest is forgotten until it is sent again");
        }
        sender.changed();
    }

    private void bury(Handling handling) {
        String text = "no listener took it within " + options.unclaimed.toMillis() + " ms";
        handling.failed(new Failure(UpdateException.DEAD_MESSAGE, text));
        handling.end();
    }

    /** Calls a listener that was just added with earlier messages. */
    private void handOver(Subscription made) {
        Map<Message, Handling> claimed = new LinkedHashMap<>();
        synchronized (lock) {
            for (Ledger.Waiting waiting : isStopping ? List.<Ledger.Waiting>of() : sender.ledger().unclaimed()) {
                if (made.hears(waiting.message().getChannel())) {
                    claimed.put(waiting.message(), claim(waiting.id()));
                }
            }
        }
        claimed.forEach((message, handling) -> run(made, message, handling));
    }

    /** A listener takes a message that none was there for; null if it does not wait for one any more. */
    private Handling claim(String id) {
        Ledger.Waiting waiting = sender.ledger().release(id);
        if (waiting == null) {
            return null;
        }
        sender.ledger().statuses.put(id, Ledger.WORKING);
        sender.changed();
        waiting.handling().join();
        return waiting.handling();
    }

    // Listeners

    /** The client calls a listener. */
    void called(Subscription subscription, Message message) {
        if (message.isPublishReply() || message.isMeta()) {
            return;
        }
        String id = idOf(message);
        Handling handling;
        synchronized (lock) {
            if (isStopping) {
                return;
            }
            handling = id == null ? null : sender.ledger().handling(id);
            if (handling != null && !handling.take(subscription)) {
                handling = claim(id);
                if (handling == null) {
                    return; // it was called with it when it was added
                }
            }
        }
        run(subscription, message, handling);
    }

    private void run(Subscription subscription, Message message, Handling handling) {
        Delivery delivery = new Delivery(message, () -> working(idOf(message)));
        Ledger current;
        synchronized (lock) {
            current = sender.ledger();
        }
        options.executor.execute(() -> {
            if (!begins(subscription, delivery, handling, current)) {
                return;
            }
            CompletionStage<?> later = null;
            try {
                later = subscription.listener().update(delivery);
            } catch (Throwable reason) { // whatever it is, the message was not processed
                if (reason instanceof InterruptedException) {
                    Thread.currentThread().interrupt();
                }
                finished(delivery, handling, reason);
                return;
            }
            if (later == null) {
                finished(delivery, handling, null);
            } else {
                later.whenComplete((ignored, reason) -> finished(delivery, handling, reason));
            }
        });
    }

    /** Whether a listener has to be called, now that its turn has come. */
    private boolean begins(Subscription subscription, Delivery delivery, Handling handling, Ledger current) {
        synchronized (lock) {
            if (isStopping) {
                return false;
            }
            if (handling != null) {
                String id = delivery.id();
                Handling latest = current.handling(id);
                if (latest != null && latest != handling) {
                    return false; // a copy has come meanwhile, and has its own turn
                }
                if (subscription.isUnwanted() || current.isDone(id) && !delivery.isInitial()) {
                    handling.end(); // the application wants it no more, or an earlier copy went well
                    return false;
                }
            }
            begun++;
            return true;
        }
    }

    private void finished(Delivery delivery, Handling handling, Throwable reason) {
        if (reason != null) {
            Failure failure = Failure.of(reason);
            if (reason instanceof UpdateException) {
                LOG.debug("a listener rejects {}: {} ({})", delivery, failure.errorCode(), failure.message());
            } else {
                LOG.warn("a listener failed with {}", delivery, reason);
            }
        }
        synchronized (lock) {
            if (handling != null) {
                if (reason != null) {
                    handling.failed(Failure.of(reason));
                }
                handling.end();
            }
            begun--;
            lock.notifyAll();
        }
    }

    private void working(String id) {
        synchronized (lock) {
            if (id != null && sender.ledger().handling(id) != null) {
                sender.ledger().statuses.put(id, Ledger.WORKING);
                sender.changed();
            }
        }
    }

    private static String idOf(Message message) {
        return Ext.part(message, "update").get("id") instanceof String id ? id : null;
    }
}

package io.crewel.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.ChannelId;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;
import org.cometd.common.HashMapMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Publishes that wait for the server in a file, which the next process continues with.
 *
 * <p>A publish is on disk when {@link #publish} returns, and leaves the file when the server has replied. The outbox sends the
 * oldest ones in their order while the client is connected, several in a request, and again after a failure that passes. What a
 * cap of the server stops keeps only its own channel waiting. Each has an idempotency key, which the server remembers for two
 * minutes: a publish whose reply was lost is still one message. Refused ones stay in the file, with the reason, until {@link
 * #forgetRefused}.
 */
public final class Outbox implements ClientSession.Extension, AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Outbox.class);
    private static final int TOGETHER = 50; // publishes in one request
    private static final int ROOM = 48 * 1024; // bytes of them: servers take 64 KiB unless they are configured otherwise
    private static final long RETRY_MS = 1000;
    private static final String KEY_PROPERTY = "idempotencyKey";

    private final BayeuxClient client;
    private final OutboxOptions options;
    private final OutboxFile file;
    private final Refusals refusals;
    private final Executor executor = new Serial();
    private final Object lock = new Object();
    private final Map<String, Long> resting = new HashMap<>(); // lanes that a cap of the server stops, and until when (ns)
    private int together = TOGETHER;
    private boolean isConnected;
    private boolean isSending; // the oldest ones are on their way, or a pause before the next attempt
    private boolean isClosed;

    private Outbox(BayeuxClient client, Path file, OutboxOptions options) throws IOException {
        this.client = client;
        this.options = options;
        this.refusals = new Refusals(client);
        this.file = new OutboxFile(file, Json.of(client));
    }

    /**
     * Opens an outbox, and sends what an earlier process has left in it as soon as the client is connected.
     *
     * @param client the client that sends
     * @param file where the publishes are kept; made if it does not exist. Another file beside it, with the ending {@code
     *     .lock}, keeps other processes out
     * @param options how much it takes
     * @return the outbox
     * @throws IllegalStateException if another process, or another client of this one, has the file
     * @throws UncheckedIOException if the file cannot be used, or is no outbox
     */
    public static Outbox addTo(BayeuxClient client, Path file, OutboxOptions options) {
        try {
            Outbox outbox = new Outbox(client, file, options);
            client.addExtension(outbox);
            outbox.connected(client.isConnected());
            return outbox;
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /**
     * Opens an outbox with the usual options.
     *
     * @param client the client that sends
     * @param file where the publishes are kept
     * @return the outbox
     */
    public static Outbox addTo(BayeuxClient client, Path file) {
        return addTo(client, file, new OutboxOptions());
    }

    /**
     * Keeps a publish until the server has it.
     *
     * @param channel the channel
     * @param data what the JSON library of the client can write
     * @param publish how the message is to be handled. It is persistent unless this says otherwise, and gets a random key if it
     *     has none. One with a key that waits already is not added again; one with the key of a refused publish replaces that
     * @return the key, when the publish is on disk
     * @throws OutboxFullException if there are too many, or too many bytes
     * @throws IllegalArgumentException if nothing can be published to the channel
     * @throws PublishException if JSON cannot represent the data
     * @throws UncheckedIOException if the file cannot be written
     */
    public String publish(String channel, Object data, PublishOptions publish) {
        ChannelId name = new ChannelId(channel);
        if (name.isMeta() || name.isWild() || name.isDeepWild()) {
            throw new IllegalArgumentException("nothing can be published to " + channel + ", a meta channel or a wildcard");
        }
        Map<String, Object> fields = publish.copy();
        fields.putIfAbsent("persistent", true);
        String key = fields.computeIfAbsent("key", ignored -> UUID.randomUUID().toString()).toString();
        Map<String, Object> properties = new LinkedHashMap<>(Ext.fields(fields.get("clientProperties")));
        properties.put(KEY_PROPERTY, key);
        fields.put("clientProperties", properties);
        check(channel, data, fields);
        Map<String, Object> kept = new LinkedHashMap<>();
        kept.put("key", key);
        kept.put("channel", channel);
        kept.put("data", data);
        kept.put("publish", fields);
        try {
            keep(key, file.line(kept));
        } catch (IllegalArgumentException failure) {
            String reason = "the JSON library of the client does not read back what it writes of the data: " + failure.getMessage();
            throw new PublishException(channel, Publisher.ILLEGAL, reason, true);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        send();
        return key;
    }

    /**
     * Keeps a publish with the usual options until the server has it.
     *
     * @param channel the channel
     * @param data what the JSON library of the client can write
     * @return the key, when the publish is on disk
     */
    public String publish(String channel, Object data) {
        return publish(channel, data, new PublishOptions());
    }

    private static void check(String channel, Object data, Map<String, Object> fields) {
        Map<String, Object> parts = new LinkedHashMap<>();
        parts.put("data", data);
        parts.put("ext.publish", fields);
        parts.forEach((name, value) -> {
            String fault = Json.fault(name, value) == null ? Json.tooPrecise(name, value) : Json.fault(name, value);
            if (fault != null) {
                throw new PublishException(channel, Publisher.ILLEGAL, fault, true);
            }
        });
    }

    private void keep(String key, String line) throws IOException {
        synchronized (lock) {
            if (isClosed) {
                throw new IllegalStateException("the outbox is closed");
            }
            if (file.isWaiting(key)) {
                return;
            }
            if (file.waiting() >= options.maxMessages || file.bytes() + OutboxFile.sizeOf(line) > options.maxBytes) {
                throw new OutboxFullException("the outbox is full: it has " + file.waiting() + " of " + options.maxMessages
                    + " messages, and " + file.bytes() + " of " + options.maxBytes + " bytes");
            }
            file.add(line);
        }
    }

    /**
     * Returns how many publishes the server has not answered yet.
     *
     * @return the number
     */
    public int waiting() {
        synchronized (lock) {
            return file.waiting();
        }
    }

    /**
     * Waits until the server has answered all publishes.
     *
     * @param limit how long to wait
     * @return whether it has
     * @throws InterruptedException if the thread is interrupted
     */
    public boolean drained(Duration limit) throws InterruptedException {
        long deadline = System.nanoTime() + limit.toNanos();
        synchronized (lock) {
            while (file.waiting() > 0 && !isClosed) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    return false;
                }
                lock.wait(left);
            }
            return file.waiting() == 0;
        }
    }

    /**
     * Returns the publishes that the server refused for good.
     *
     * @return the publishes, oldest refusal first
     */
    public List<RefusedPublish> refused() {
        synchronized (lock) {
            return file.refused();
        }
    }

    /**
     * Deletes the refused publishes.
     *
     * @throws UncheckedIOException if the file cannot be written
     */
    public void forgetRefused() {
        synchronized (lock) {
            try {
                file.forgetRefused();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }

    /** Sends no more, and lets the next process have the file. What waits stays in it; {@link #drained} waits for that. */
    @Override
    public void close() {
        synchronized (lock) {
            if (isClosed) {
                return; // another outbox may have the file
            }
            isClosed = true;
            lock.notifyAll();
            try {
                file.close();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        client.removeExtension(this);
    }

    // The client's side

    @Override
    public boolean rcvMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_CONNECT.equals(message.getChannel())) {
            connected(message.isSuccessful());
        } else if (Channel.META_HANDSHAKE.equals(message.getChannel()) || Channel.META_DISCONNECT.equals(message.getChannel())) {
            connected(false);
        }
        return true;
    }

    private void connected(boolean isNow) {
        synchronized (lock) {
            boolean was = isConnected;
            isConnected = isNow;
            if (!isNow || was) {
                return;
            }
        }
        executor.execute(this::send); // after the client has taken the reply
    }

    private void send() {
        List<Map<String, Object>> rows;
        synchronized (lock) {
            if (isSending || isClosed || !isConnected) {
                return;
            }
            long now = System.nanoTime();
            resting.values().removeIf(until -> until - now <= 0);
            rows = file.oldest(together, ROOM, resting.keySet());
            if (rows.isEmpty()) {
                return;
            }
            isSending = true;
        }
        Message[] replies = new Message[rows.size()];
        AtomicInteger left = new AtomicInteger(replies.length);
        client.batch(() -> {
            for (int number = 0; number < replies.length; number++) {
                int place = number;
                Map<String, Object> row = rows.get(number);
                Message.Mutable message = new HashMapMessage();
                message.setData(row.get("data"));
                message.getExt(true).put("publish", row.get("publish"));
                client.getChannel(row.get("channel").toString()).publish(message, reply -> {
                    replies[place] = reply;
                    if (left.decrementAndGet() == 0) {
                        executor.execute(() -> answered(rows, replies));
                    }
                });
            }
        });
    }

    /** All replies to a request are there, or it has failed. */
    private void answered(List<Map<String, Object>> rows, Message[] replies) {
        List<OutboxFile.Outcome> outcomes = new ArrayList<>();
        Set<String> full = new HashSet<>(); // lanes for which a cap of the server is reached
        boolean isDivided = false; // one of them is not taken, or they are too many: fewer show which
        boolean isAnswered = false; // the server has processed the request
        boolean isPutOff = false;
        long restMs = RETRY_MS;
        for (int number = 0; number < replies.length; number++) {
            Message reply = replies[number];
            String key = rows.get(number).get("key").toString();
            Failure refusal = reply.isSuccessful() ? null : refusals.add(reply);
            isAnswered |= refusal != null || !reply.containsKey("failure");
            restMs = Math.max(restMs, Refusals.retryAfter(reply));
            if (reply.isSuccessful() || refusal != null) {
                outcomes.add(new OutboxFile.Outcome(key, refusal));
            } else if (Refusals.isOne(reply)) {
                isDivided = true;
            } else if (Refusals.isForCap(reply)) {
                full.add(OutboxFile.lane(rows.get(number)));
            } else if (Refusals.isPassing(reply)) {
                isPutOff = true;
            } else {
                outcomes.add(new OutboxFile.Outcome(key, PublishException.failure(reply)));
            }
        }
        synchronized (lock) {
            if (isDivided) {
                together = Math.max(1, replies.length / 2);
            } else {
                // A request that failed may have had one message that does: alone, it fails alone.
                together = isAnswered ? Math.min(2 * together, TOGETHER) : 1;
            }
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(restMs);
            full.forEach(lane -> resting.put(lane, until)); // what is behind them need not wait
        }
        if (!full.isEmpty()) {
            StatusSender.later(restMs, this::send);
        }
        boolean isAtOnce = isDivided ? replies.length > 1 : !isPutOff;
        settle(outcomes, isAtOnce ? 0 : restMs);
    }

    /**
     * Writes to the file what the server has answered, and continues after a pause. If that fails, it is remembered, and nothing
     * is sent until then.
     */
    private void settle(List<OutboxFile.Outcome> outcomes, long pauseMs) {
        List<RefusedPublish> refused;
        synchronized (lock) {
            if (isClosed) {
                return;
            }
            try {
                file.settle(outcomes);
            } catch (IOException failure) {
                LOG.warn("the outbox cannot be written; trying again", failure);
                StatusSender.later(RETRY_MS, () -> executor.execute(() -> settle(outcomes, pauseMs)));
                return;
            }
            List<String> keys = outcomes.stream().filter(each -> each.refusal() != null).map(OutboxFile.Outcome::key).toList();
            refused = keys.isEmpty() ? List.of() : file.refused().stream().filter(each -> keys.contains(each.key())).toList();
            isSending = pauseMs > 0;
            lock.notifyAll();
        }
        for (RefusedPublish each : refused) {
            LOG.warn("a publish to {} was refused: {} {}", each.channel(), each.errorCode(), each.message());
            StatusSender.call(() -> options.onRefused.accept(each));
        }
        if (pauseMs == 0) {
            send();
        } else {
            StatusSender.later(pauseMs, () -> {
                synchronized (lock) {
                    isSending = false;
                }
                send();
            });
        }
    }
}

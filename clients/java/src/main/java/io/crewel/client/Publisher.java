package io.crewel.client;

import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.common.HashMapMessage;

/**
 * Publishes messages with options, and repeats those that have a key until the server has replied. A repeat does no harm: the
 * server remembers a key for two minutes.
 */
public final class Publisher {
    /** The code of what is wrong with a message itself. */
    static final String ILLEGAL = "user.illegalArgument";
    private static final long PAUSE_MS = 500;

    private final BayeuxClient client;
    private final Duration patience;
    private final LastHandshake handshake;

    /**
     * Makes a publisher that repeats a publish for at most a minute.
     *
     * @param client the client that sends
     */
    public Publisher(BayeuxClient client) {
        this(client, Duration.ofMinutes(1));
    }

    /**
     * Makes a publisher.
     *
     * @param client the client that sends
     * @param patience how long a publish is repeated while the server cannot be reached; less than the two minutes for which it
     *     remembers a key
     */
    public Publisher(BayeuxClient client, Duration patience) {
        this.client = Objects.requireNonNull(client);
        this.patience = Objects.requireNonNull(patience);
        this.handshake = LastHandshake.of(client);
    }

    /**
     * Publishes a message.
     *
     * @param channel the channel
     * @param data what the JSON library of the client can write
     * @param options how the message is to be handled. A persistent message without a key gets a random one
     * @return completes with the id of the message, or null if the server does not say it; fails with a {@link
     *     PublishException}, at once if JSON cannot represent the data, the server never takes it, or has refused the login
     */
    public CompletableFuture<String> publish(String channel, Object data, PublishOptions options) {
        Map<String, Object> fields = options.copy();
        if (Boolean.TRUE.equals(fields.get("persistent"))) {
            fields.putIfAbsent("key", UUID.randomUUID().toString());
        }
        CompletableFuture<String> done = new CompletableFuture<>();
        String fault = Json.fault("data", data) == null ? Json.fault("ext.publish", fields) : Json.fault("data", data);
        if (fault != null) {
            done.completeExceptionally(new PublishException(channel, ILLEGAL, fault, true));
            return done;
        }
        attempt(channel, data, fields, System.nanoTime() + patience.toNanos(), new Refusals(client), done);
        return done;
    }

    private void attempt(
        String channel, Object data, Map<String, Object> fields, long deadline, Refusals refusals, CompletableFuture<String> done
    ) {
        refusals.begin();
        Message.Mutable message = new HashMapMessage();
        message.setData(data);
        message.getExt(true).put("publish", fields);
        client.getChannel(channel).publish(message, reply -> {
            if (reply.isSuccessful()) {
                done.complete(Ext.text(Ext.part(reply, "publish").get("id")));
                return;
            }
            Failure refusal = refusals.add(reply);
            if (refusal != null) {
                done.completeExceptionally(new PublishException(channel, refusal.errorCode(), refusal.message(), true));
                return;
            }
            boolean isLost = Refusals.isPassing(reply);
            boolean isInTime = System.nanoTime() < deadline && !client.isDisconnected();
            boolean isRepeatable = fields.containsKey("key") || Refusals.isOne(reply) || Refusals.isForRate(reply);
            if (isLost && isInTime && isRepeatable && !done.isDone()) {
                long pauseMs = Math.max(PAUSE_MS, Refusals.retryAfter(reply));
                CompletableFuture.delayedExecutor(pauseMs, TimeUnit.MILLISECONDS)
                    .execute(() -> attempt(channel, data, fields, deadline, refusals, done));
            } else if (isLost && !client.isHandshook()) {
                String reason = "there is no session: " + handshake.refusal();
                // Nothing was sent if the login was refused before the first attempt.
                boolean isRefused = handshake.isRefused() && refusals.attempts() == 1;
                done.completeExceptionally(new PublishException(channel, handshake.errorCode(), reason, isRefused));
            } else {
                done.completeExceptionally(PublishException.of(channel, reply, !isLost));
            }
        });
    }
}

package io.crewel.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.cometd.common.HashMapMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends requests, waits for the answer to each, and answers requests of others: xMsg's sync-publish.
 *
 * <p>Each request has a reply channel of its own, {@code /ret/ID/LDDDDDD}: the server assigns the ID at the handshake, L stands
 * for Java, D is a counter. One subscription receives all answers; it is confirmed before the first request is sent.
 */
public final class RequestExtension implements ClientSession.Extension {
    private static final Logger LOG = LoggerFactory.getLogger(RequestExtension.class);
    private static final int JAVA = 1; // the language in the names of reply channels
    private static final int SERIALS = 1_000_000;
    private static final int TRIES = 3; // of an answer that may or may not have arrived
    private static final long RETRY_MS = 1000;
    private static final Pattern COMPLETE = Pattern.compile("/ret/[A-Za-z0-9_-]{1,64}/[1-9][0-9]{6}");
    private static final String FAULT = "internal.unknown";
    private static final String UNTOLD = "the responder failed";
    private static final int LONGEST_CODE = 200;
    private static final int LONGEST_TEXT = 500;

    private final BayeuxClient client;
    private final String ownId = UUID.randomUUID().toString().replace("-", "");
    private final Executor executor = new Serial();
    private final List<Asked> arrivals = new ArrayList<>(); // who waits for a session
    private final Map<String, Asked> pending = new HashMap<>(); // by reply channel
    // An ID may outlive its process: an answer to the earlier one must not answer a request of this one.
    private int serial = ThreadLocalRandom.current().nextInt(SERIALS);
    private String id; // of this session's reply channels; null while there is no session
    private boolean isGiven; // whether the server has given it
    private CompletableFuture<Void> listening; // this session's one subscription

    /** A request that waits for its answer. */
    private record Asked(String channel, Object data, Map<String, Object> ext, CompletableFuture<Message> answer) { }

    private RequestExtension(BayeuxClient client) {
        this.client = client;
    }

    /**
     * Adds the extension to a client, before its handshake.
     *
     * @param client the client
     * @return the extension
     */
    public static RequestExtension addTo(BayeuxClient client) {
        RequestExtension extension = new RequestExtension(Objects.requireNonNull(client));
        client.addExtension(extension);
        return extension;
    }

    /**
     * Returns the channel for the answer to a message.
     *
     * @param message the message
     * @return the channel; null if the message is not a request
     */
    public static String replyChannel(Message message) {
        Object plain = message.getExt() == null ? null : message.getExt().get("replyTo");
        for (Object told : new Object[] {plain, Ext.part(message, "update").get("replyTo")}) {
            if (told instanceof String name && COMPLETE.matcher(name).matches()) {
                return name;
            }
        }
        return null;
    }

    /**
     * Returns the answer to a request, to be published on its channel.
     *
     * @param request the request
     * @param data the data of the answer
     * @return the answer
     * @throws IllegalArgumentException if the message is not a request
     */
    public static Message.Mutable createResponse(Message request, Object data) {
        String channel = replyChannel(request);
        if (channel == null) {
            throw new IllegalArgumentException("the message on " + request.getChannel() + " takes no answer: it is no request");
        }
        Message.Mutable response = new HashMapMessage();
        response.setChannel(channel);
        response.setData(data);
        return response;
    }

    /**
     * Returns the answer to a request with the request's own data, and its client properties.
     *
     * @param request the request
     * @return the answer
     * @throws IllegalArgumentException if the message is not a request
     */
    public static Message.Mutable createResponse(Message request) {
        Message.Mutable response = createResponse(request, request.getData());
        if (!Ext.part(request, "binary").isEmpty()) {
            Ext.put(response, "binary", Ext.part(request, "binary"));
        }
        Object properties = Ext.part(request, "update").get("clientProperties");
        if (properties != null) {
            Ext.put(response, "publish", Map.of("clientProperties", properties));
        }
        return response;
    }

    /**
     * Publishes a request. It waits for a session, too, if there is none yet.
     *
     * @param channel where responders are subscribed
     * @param data what the JSON library of the client can write
     * @param limit how long to wait for the answer
     * @return completes with the first answer; fails with an {@link AnswerTimeoutException}, an {@link ErrorAnswerException} or
     *     a {@link RequestException}
     */
    public CompletableFuture<Message> request(String channel, Object data, Duration limit) {
        return request(channel, data, limit, new PublishOptions());
    }

    /**
     * Publishes a request with options, such as a persistent one.
     *
     * @param channel where responders are subscribed
     * @param data what the JSON library of the client can write
     * @param limit how long to wait for the answer
     * @param options how the request is to be handled
     * @return as above
     */
    public CompletableFuture<Message> request(String channel, Object data, Duration limit, PublishOptions options) {
        Asked asked = new Asked(channel, data, options.copy(), new CompletableFuture<>());
        String fault = Json.fault("data", data);
        if (fault != null) {
            asked.answer().completeExceptionally(new RequestException(channel + ": " + fault));
            return asked.answer();
        }
        CompletableFuture<Void> waited = new CompletableFuture<>();
        waited.completeOnTimeout(null, limit.toMillis(), TimeUnit.MILLISECONDS).thenRunAsync(() -> {
            if (!asked.answer().isDone()) {
                asked.answer().completeExceptionally(new AnswerTimeoutException(channel, limit));
            }
        });
        asked.answer().whenComplete((message, failure) -> {
            waited.complete(null); // its timer would keep the request in memory
            synchronized (this) {
                pending.values().remove(asked);
                arrivals.remove(asked);
            }
        });
        ask(asked);
        return asked.answer();
    }

    /**
     * Answers the requests on a channel. In a client with an {@link UpdateExtension}, a request is acknowledged when its answer
     * is sent.
     *
     * @param channel a channel or a wildcard
     * @param responder called with each request, outside of the client's threads
     * @return ends the subscription when it runs
     */
    public Runnable reply(String channel, Responder responder) {
        Objects.requireNonNull(responder);
        for (ClientSession.Extension extension : client.getExtensions()) {
            if (extension instanceof UpdateExtension update) {
                return update.subscribeAsync(channel, delivery -> respond(delivery, responder))::unsubscribe;
            }
        }
        ClientSessionChannel subscribed = client.getChannel(channel);
        ClientSessionChannel.MessageListener listener =
            (ignored, message) -> executor.execute(() -> respond(new Delivery(message, () -> { }), responder));
        subscribed.subscribe(listener);
        return () -> subscribed.unsubscribe(listener);
    }

    // The client's side

    @Override
    public synchronized boolean sendMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
            id = null;
            listening = null; // the client forgets its subscriptions
            Ext.put(message, "session", Ext.part(message, "session")); // what makes the server give an ID
        }
        return true;
    }

    @Override
    public boolean rcvMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel()) && message.isSuccessful()) {
            List<Asked> waiting;
            synchronized (this) {
                String given = Ext.text(Ext.part(message, "session").get("replyId"));
                isGiven = given != null;
                id = isGiven ? given : ownId;
                waiting = new ArrayList<>(arrivals);
                arrivals.clear();
                if (!pending.isEmpty()) {
                    listen(); // the same session may go on, and its answers with it
                }
            }
            lose(prefix());
            waiting.forEach(this::ask);
        } else if (Channel.META_DISCONNECT.equals(message.getChannel()) && message.isSuccessful()) {
            lose("");
        }
        return true;
    }

    @Override
    public boolean rcv(ClientSession session, Message.Mutable message) {
        if (!message.isPublishReply()) {
            Asked asked;
            synchronized (this) {
                asked = pending.get(message.getChannel());
            }
            if (asked != null) {
                ErrorAnswerException error = errorOf(message);
                CompletableFuture<Message> answer = asked.answer();
                boolean isFirst = error == null ? answer.complete(message) : answer.completeExceptionally(error);
                LOG.debug("an answer to {}{}", asked.channel(), isFirst ? "" : ", which has one already");
            }
        }
        return true;
    }

    private synchronized String prefix() {
        return "/ret/" + id + "/";
    }

    // Sending requests

    private void ask(Asked asked) {
        String session;
        CompletableFuture<Void> heard;
        synchronized (this) {
            session = id;
            if (session == null) {
                arrivals.add(asked);
                return;
            }
            heard = listen();
        }
        heard.whenComplete((ignored, failure) -> {
            boolean isSame;
            synchronized (this) {
                isSame = session.equals(id);
            }
            if (!isSame) {
                ask(asked); // another session has come meanwhile
            } else if (failure != null) {
                asked.answer().completeExceptionally(failure);
            } else if (!asked.answer().isDone()) { // else it was too late
                send(asked);
            }
        });
    }

    /** Subscribes to this session's answers, once. */
    private CompletableFuture<Void> listen() {
        if (listening == null) {
            CompletableFuture<Void> made = new CompletableFuture<>();
            listening = made;
            client.getChannel(prefix() + "*").subscribe((channel, message) -> { }, reply -> {
                if (reply.isSuccessful()) {
                    made.complete(null);
                    return;
                }
                synchronized (this) {
                    listening = listening == made ? null : listening;
                }
                String reason = PublishException.reason(reply);
                made.completeExceptionally(new RequestException("answers cannot be received: " + reason));
            });
        }
        return listening;
    }

    private void send(Asked asked) {
        Message.Mutable message = new HashMapMessage();
        message.setData(asked.data());
        synchronized (this) {
            String replyTo = nextChannel();
            if (replyTo == null) {
                asked.answer().completeExceptionally(new RequestException(SERIALS + " requests are waiting for their answers"));
                return;
            }
            pending.put(replyTo, asked);
            Map<String, Object> publish = new LinkedHashMap<>(asked.ext());
            if (isGiven) {
                publish.put("replyTo", replyTo);
            } else {
                message.getExt(true).put("replyTo", replyTo);
            }
            if (!publish.isEmpty()) {
                message.getExt(true).put("publish", publish);
            }
        }
        client.getChannel(asked.channel()).publish(message, reply -> {
            if (!reply.isSuccessful()) {
                String text = asked.channel() + ": " + PublishException.reason(reply);
                asked.answer().completeExceptionally(new RequestException(text));
            }
        });
    }

    /** The next reply channel that no request has; null if all have one. */
    private String nextChannel() {
        for (int left = SERIALS; left > 0; left--) {
            String channel = prefix() + (JAVA * SERIALS + serial); // no format: its digits are those of the country
            serial = (serial + 1) % SERIALS;
            if (!pending.containsKey(channel)) {
                return channel;
            }
        }
        return null;
    }

    /** Fails the requests that no answer can reach any more: all except those whose channel has this prefix. */
    private void lose(String kept) {
        Map<String, Asked> waiting;
        synchronized (this) {
            waiting = new HashMap<>(pending);
        }
        waiting.forEach((channel, asked) -> {
            if (kept.isEmpty() || !channel.startsWith(kept)) {
                asked.answer().completeExceptionally(new RequestException(asked.channel() + ": the session was lost"));
            }
        });
    }

    // Answering

    private CompletionStage<?> respond(Delivery request, Responder responder) {
        if (request.replyTo() == null) {
            return null;
        }
        CompletableFuture<Object> answered = new CompletableFuture<>();
        try {
            Object answer = responder.answer(request);
            if (answer instanceof CompletionStage<?> later) {
                later.whenComplete((data, failure) -> {
                    if (failure == null) {
                        answered.complete(data);
                    } else {
                        answered.completeExceptionally(failure);
                    }
                });
            } else {
                answered.complete(answer);
            }
        } catch (Exception failure) {
            answered.completeExceptionally(failure);
        }
        CompletableFuture<Void> sent = new CompletableFuture<>();
        answered.whenComplete((data, failure) -> send(request.message(), failure == null ? data : null, failure, sent));
        return sent;
    }

    /** Publishes an answer, and repeats it if it is unknown whether it arrived: a second one does no harm. */
    private void send(Message request, Object data, Throwable failure, CompletableFuture<Void> sent) {
        String fault = Json.fault("data", data);
        if (fault == null) {
            send(request, data, failure, TRIES, new Refusals(client), sent);
        } else {
            send(request, null, new RequestException(fault), sent);
        }
    }

    private void send(
        Message request, Object data, Throwable failure, int tries, Refusals refusals, CompletableFuture<Void> sent
    ) {
        Message.Mutable response = failure == null ? createResponse(request, data) : failed(request, failure);
        client.getChannel(response.getChannel()).publish(response, reply -> {
            if (reply.isSuccessful()) {
                sent.complete(null);
                return;
            }
            boolean isNeverTaken = isIllegal(reply) || refusals.add(reply) != null;
            int left = Refusals.isOne(reply) && refusals.areFew() ? tries : tries - 1;
            if (isNeverTaken && failure == null) { // the requester gets that instead
                send(request, null, new RequestException(PublishException.reason(reply)), sent);
            } else if (!isNeverTaken && Refusals.isPassing(reply) && left > 0) {
                CompletableFuture.delayedExecutor(RETRY_MS, TimeUnit.MILLISECONDS)
                    .execute(() -> send(request, data, failure, left, refusals, sent));
            } else {
                String reason = response.getChannel() + ": " + PublishException.reason(reply);
                LOG.warn("an answer could not be sent: {}", reason);
                sent.completeExceptionally(new RequestException(reason));
            }
        });
    }

    private static boolean isIllegal(Message reply) {
        return reply.get(Message.ERROR_FIELD) instanceof String error && error.endsWith(":" + Publisher.ILLEGAL);
    }

    private static Message.Mutable failed(Message request, Throwable failure) {
        Throwable cause = Failure.cause(failure);
        Map<String, Object> error = new LinkedHashMap<>();
        Object data = null;
        if (cause instanceof ErrorAnswerException told) {
            error.put("errorCode", Failure.cut(Objects.toString(told.errorCode(), FAULT), LONGEST_CODE));
            error.put("message", Failure.cut(Objects.toString(told.getMessage(), ""), LONGEST_TEXT));
            data = Json.fault("data", told.data()) == null ? told.data() : null;
        } else {
            LOG.warn("a responder failed: {}", request.getChannel(), cause);
            error.put("errorCode", FAULT);
            error.put("message", UNTOLD);
        }
        Message.Mutable response = createResponse(request, data);
        Ext.put(response, "error", error);
        return response;
    }

    /** The failure that an answer reports, or null. */
    private static ErrorAnswerException errorOf(Message message) {
        Object told = message.getExt() == null ? null : message.getExt().get("error");
        if (told instanceof String text) {
            return new ErrorAnswerException(FAULT, text, message.getData());
        }
        if (!(told instanceof Map)) {
            return null;
        }
        String code = Ext.text(Ext.fields(told).get("errorCode"));
        String text = Ext.text(Ext.fields(told).get("message"));
        return new ErrorAnswerException(code == null ? FAULT : code, text == null ? "" : text, message.getData());
    }
}

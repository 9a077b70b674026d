package io.crewel.client;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.ClientTransport;
import org.cometd.client.transport.TransportListener;
import org.cometd.common.HashMapMessage;

/** A transport whose requests the test answers: all at once, but for the connect. */
final class Wire extends ClientTransport {
    static final Map<String, Object> GRANTED =
        Map.of("ack", true, "session", Map.of("update", true, "unclaimed", true, "reconnected", false));

    final List<Object> statuses = new CopyOnWriteArrayList<>();
    final List<Message> handshakes = new CopyOnWriteArrayList<>();
    final List<Object> subscribed = new CopyOnWriteArrayList<>();
    private final BlockingQueue<Held> held = new LinkedBlockingQueue<>();
    volatile boolean cutsSubscribes; // the connection breaks before the reply
    volatile Map<String, Object> subscribes = Map.of(); // what the replies to subscribes say
    volatile Exception cut = new IOException("cut"); // how the connection breaks
    final List<Integer> sizes = new CopyOnWriteArrayList<>(); // publishes in each request that has some
    final List<Message> published = new CopyOnWriteArrayList<>();
    /** The answer to a publish; null cuts the connection before the reply. */
    volatile Function<Message, Map<String, Object>> publishes = message -> Map.of("successful", true);
    private Object rejected = List.of(); // what the reply to the next connect says of its statuses

    /** A connect that waits for its reply. */
    private record Held(TransportListener listener, Message message) { }

    Wire() {
        super("wire", null, null, null);
    }

    /** A client over a wire of its own. */
    static BayeuxClient client(Wire wire) {
        return new BayeuxClient("http://nowhere/cometd", wire);
    }

    @Override
    public boolean accept(String version) {
        return true;
    }

    @Override
    public void abort(Throwable failure) { }

    @Override
    public void send(TransportListener listener, List<Message.Mutable> messages) {
        int size = (int) messages.stream().filter(Wire::isPublish).count();
        if (size > 0) {
            sizes.add(size);
        }
        for (Message message : messages) {
            Object told = message.getChannel().equals("/service/update")
                ? message.getData()
                : message.getExt() == null ? null : message.getExt().get("update");
            statuses.addAll(Ext.list(told));
            if (Channel.META_SUBSCRIBE.equals(message.getChannel())) {
                subscribed.add(message.get(Message.SUBSCRIPTION_FIELD));
                if (cutsSubscribes) {
                    listener.onFailure(cut, List.of(message));
                    continue;
                }
            }
            if (Channel.META_CONNECT.equals(message.getChannel())) {
                held.add(new Held(listener, message));
            } else {
                Message.Mutable reply = reply(message);
                if (Channel.META_SUBSCRIBE.equals(message.getChannel())) {
                    reply.putAll(subscribes);
                }
                if (isPublish(message)) {
                    published.add(message);
                    Map<String, Object> answer = publishes.apply(message);
                    if (answer == null) {
                        listener.onFailure(cut, List.of(message));
                        continue;
                    }
                    reply.putAll(answer);
                }
                if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
                    handshakes.add(message);
                    reply.put("ext", GRANTED);
                    reply.put("clientId", "c");
                    reply.put("version", "1.0");
                    reply.put("supportedConnectionTypes", List.of("wire"));
                }
                listener.onMessages(List.of(reply));
            }
        }
    }

    private static boolean isPublish(Message message) {
        return !message.isMeta() && !message.getChannel().equals("/service/update");
    }

    private static Message.Mutable reply(Message message) {
        Message.Mutable reply = new HashMapMessage();
        reply.setId(message.getId());
        reply.setChannel(message.getChannel());
        reply.setSuccessful(true);
        if (message.get(Message.SUBSCRIPTION_FIELD) != null) {
            reply.put(Message.SUBSCRIPTION_FIELD, message.get(Message.SUBSCRIPTION_FIELD));
        }
        return reply;
    }

    /** Lets the reply to the next connect reject a status. */
    void reject(Map<String, Object> status) {
        rejected = List.of(status);
    }

    /** Answers the connect with messages, as soon as one is held. */
    void deliver(Message.Mutable... messages) throws InterruptedException {
        Held connect = held.poll(20, TimeUnit.SECONDS);
        if (connect == null) {
            throw new AssertionError("the client sends no connect");
        }
        List<Message.Mutable> answer = new ArrayList<>(List.of(messages));
        Message.Mutable reply = reply(connect.message());
        reply.put("ext", Map.of("ack", 1L, "update", Map.of("rejected", rejected)));
        rejected = List.of();
        answer.add(reply);
        connect.listener().onMessages(answer);
    }
}

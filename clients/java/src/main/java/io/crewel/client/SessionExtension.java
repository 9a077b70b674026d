package io.crewel.client;

import java.io.IOException;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.Promise;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.TransportListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Names the session of this client, and resumes it: after a lost session, and in the next process.
 *
 * <p>Every handshake carries {@code ext.session}. The reply contains {@code resume}, a secret that only the last login of a
 * session has. The next handshake sends it, and takes over the session with its subscriptions and its queue: what this client has
 * subscribed it to continues when the application subscribes again, and no history comes again. While the name is taken
 * by a client that is gone, the extension makes the client try again until the server frees the name.
 */
public final class SessionExtension implements ClientSession.Extension {
    private static final Logger LOG = LoggerFactory.getLogger(SessionExtension.class);
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final long RETRY_MS = 1000;
    private static final long QUIET_MS = 2000; // for which a connect is put off, well below the patience of any server
    private static final long LOOK_MS = 20;
    private static final long USUAL_HOLD_MS = 30_000; // of a connect, if the server has not said it

    private final BayeuxClient client;
    private final SessionOptions options;
    private final ResumeFile file;
    private final Tokens tokens; // null without a function
    private volatile long holdMs = USUAL_HOLD_MS;
    private volatile Message handshake; // the last one, which waits for its token or has it
    private volatile boolean isReporting; // whether the connect on its way carries statuses
    private final Set<String> unanswered = ConcurrentHashMap.newKeySet(); // ids of what is on its way, but for connects
    private final Set<String> begun = new HashSet<>(); // what this client has subscribed the session to
    private String resume;
    private Map<String, Object> reply;
    private Refusal refusal;
    private boolean hasSentResume; // with the last handshake
    private volatile boolean hasHadSession;

    private SessionExtension(BayeuxClient client, SessionOptions options) {
        this.client = client;
        this.options = options;
        this.tokens = options.token == null ? null : new Tokens(options.token);
        this.file = options.resumeFile == null ? null : new ResumeFile(options.resumeFile);
        this.resume = file == null ? null : file.read();
    }

    /**
     * Adds the extension to a client, before its handshake.
     *
     * @param client the client
     * @param options the fields of the session
     * @return the extension
     * @throws java.io.UncheckedIOException if the resume file cannot be read
     */
    public static SessionExtension addTo(BayeuxClient client, SessionOptions options) {
        SessionExtension extension = new SessionExtension(client, Objects.requireNonNull(options));
        client.addExtension(extension);
        LastHandshake.of(client); // for a publisher that is made after the login was refused
        // Extensions see a refused handshake after the client has read its advice; transport listeners see it before.
        client.addTransportListener(new TransportListener() {
            @Override
            public void onSending(List<? extends Message> messages) {
                messages.forEach(extension::sending);
            }

            @Override
            public void onMessages(List<Message.Mutable> messages) {
                messages.forEach(extension::advise);
                if (extension.tokens != null) {
                    extension.renew(messages);
                }
            }

            @Override
            public void onFailure(Throwable failure, List<? extends Message> messages) {
                messages.forEach(each -> extension.unanswered.remove(each.getId()));
            }
        });
        return extension;
    }

    /**
     * Returns {@code ext.session} of the last successful handshake reply, with {@code name}, {@code reconnected} and more.
     *
     * @return the fields, or null
     */
    public synchronized Map<String, Object> reply() {
        return reply;
    }

    /**
     * Returns the public name of the session.
     *
     * @return the name, or null
     */
    public synchronized String name() {
        return reply == null ? null : Ext.text(reply.get("name"));
    }

    /**
     * Returns whether the last handshake took over a session, with its subscriptions and its queue.
     *
     * @return whether it did
     */
    public synchronized boolean isReconnected() {
        return reply != null && Boolean.TRUE.equals(reply.get("reconnected"));
    }

    /**
     * Returns why there is no session: why the server refused the last handshake, that another client has taken over the session,
     * or that the function that gives the token failed.
     *
     * @return the reason; null if there is a session
     */
    public synchronized Refusal refusal() {
        return refusal;
    }

    /** Makes the next handshake open a new session. */
    public synchronized void forget() {
        keep(null);
    }

    @Override
    public void outgoing(ClientSession session, Message.Mutable message, Promise<Boolean> promise) {
        Runnable send = () -> ClientSession.Extension.super.outgoing(session, message, promise);
        if (tokens != null && Channel.META_HANDSHAKE.equals(message.getChannel())) {
            handshake = message;
            withToken(message, send);
        } else if (tokens != null && Channel.META_CONNECT.equals(message.getChannel()) && tokens.isRenewed()) {
            // Before the next token is shown, the server has to know what was received, and is to send nothing more.
            Ext.put(message, "busy", true);
            message.getAdvice(true).put(Message.TIMEOUT_FIELD, 0);
            whenQuiet(System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(QUIET_MS), send);
        } else {
            send.run();
        }
    }

    private void whenQuiet(long deadline, Runnable then) {
        if (isQuiet() || System.nanoTime() > deadline) {
            then.run();
        } else {
            StatusSender.later(LOOK_MS, () -> whenQuiet(deadline, then));
        }
    }

    /** Gives a handshake its token: it waits until the function returns one. */
    private void withToken(Message.Mutable waiting, Runnable then) {
        tokens.take().whenComplete((token, failure) -> {
            if (waiting != handshake) {
                return; // the application has begun another one meanwhile: two would take the session from each other
            }
            if (failure == null || client.isDisconnected()) {
                Map<String, Object> asked = new LinkedHashMap<>(Ext.part(waiting, "session"));
                if (token != null) {
                    asked.put("token", token);
                }
                Ext.put(waiting, "session", asked);
                then.run();
                return;
            }
            String reason = "the function that gives the token failed: " + Failure.cause(failure);
            boolean isNew;
            synchronized (this) {
                isNew = refusal == null || !refusal.message().equals(reason);
                refusal = new Refusal("", reason, null, false);
            }
            if (isNew) {
                LOG.warn("no handshake yet: {}", reason);
                changed();
            }
            StatusSender.later(RETRY_MS, () -> withToken(waiting, then));
        });
    }

    @Override
    public synchronized boolean sendMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
            Map<String, Object> asked = new LinkedHashMap<>(Ext.part(message, "session"));
            asked.putAll(options.asked());
            if (options.waits) { // or two clients with a token would take the session from each other, without end
                asked.put("reconnectSameClientOnly", true);
            }
            hasSentResume = resume != null;
            if (hasSentResume) {
                asked.put("resume", resume);
            }
            byte[] nonce = new byte[16]; // by it, the server recognises a copy that a proxy sends
            RANDOM.nextBytes(nonce);
            asked.put("nonce", HexFormat.of().formatHex(nonce));
            Ext.put(message, "session", asked);
        } else if (Channel.META_SUBSCRIBE.equals(message.getChannel())) {
            Map<String, Object> asked = Ext.part(message, "subscribe");
            if (begun.contains(subscription(message)) && !asked.isEmpty()) {
                Ext.put(message, "subscribe", continued(asked));
            }
        } else if (Channel.META_UNSUBSCRIBE.equals(message.getChannel())) {
            begun.remove(subscription(message));
        } else if (tokens != null && Channel.META_CONNECT.equals(message.getChannel())) {
            long patience = tokens.patience();
            if (patience < holdMs && message.getAdvice() == null) { // the next token is due before the server would answer
                message.getAdvice(true).put(Message.TIMEOUT_FIELD, patience);
            }
        }
        return true;
    }

    @Override
    public boolean rcvMeta(ClientSession session, Message.Mutable message) {
        boolean isChanged = false;
        synchronized (this) {
            if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
                answered(message);
                isChanged = true;
            } else if (Channel.META_CONNECT.equals(message.getChannel()) && isTakenOver(message)) {
                reply = null;
                String text = "another client has taken over this session";
                refusal = new Refusal(Refusal.IDENTICAL_CLIENT, text, null, !options.waits);
                isChanged = true;
            } else if (Channel.META_DISCONNECT.equals(message.getChannel()) && message.isSuccessful()) {
                keep(null);
            } else if (Channel.META_SUBSCRIBE.equals(message.getChannel())) {
                subscribed(message);
            }
        }
        if (isChanged) {
            changed();
        }
        return true;
    }

    /** An answer to a subscribe; without an id, the server has ended a subscription. */
    private void subscribed(Message message) {
        if (message.isSuccessful()) {
            begun.add(subscription(message));
        } else if (message.getId() == null) {
            begun.remove(subscription(message));
        }
    }

    /** The fields of a subscribe for a session that has the subscription: nothing of a history comes again. */
    private static Map<String, Object> continued(Map<String, Object> asked) {
        Map<String, Object> fields = new LinkedHashMap<>(asked);
        fields.keySet().removeAll(Set.of("history", "since"));
        fields.put("initialUpdate", false);
        return fields;
    }

    private static String subscription(Message message) {
        return String.valueOf(message.get(Message.SUBSCRIPTION_FIELD));
    }

    @Override
    public synchronized boolean rcv(ClientSession session, Message.Mutable message) {
        if ("ERASED".equals(Ext.part(message, "update").get("state"))) {
            begun.remove(message.getChannel());
        }
        return true;
    }

    private void changed() {
        StatusSender.call(() -> options.onChange.accept(this));
    }

    private void answered(Message message) {
        Map<String, Object> told = Ext.part(message, "session");
        if (message.isSuccessful()) {
            reply = told;
            refusal = null;
            hasHadSession = true;
            if (!isReconnected()) {
                begun.clear();
            }
            keep(Ext.text(told.get("resume")));
            return;
        }
        reply = null;
        if (message.containsKey("failure")) {
            return; // nothing was refused: the server was not there
        }
        String code = Ext.text(told.get("errorCode"));
        Map<String, Object> advice = message.getAdvice();
        boolean isFinal = advice != null && Message.RECONNECT_NONE_VALUE.equals(advice.get(Message.RECONNECT_FIELD));
        refusal = code == null
            ? new Refusal("", String.valueOf(message.get(Message.ERROR_FIELD)), null, isFinal)
            : new Refusal(code, String.valueOf(told.get("message")), retryAfter(told), isFinal);
        if (Refusal.IDENTICAL_CLIENT.equals(code)) {
            keep(null); // the secret is useless now: another client has taken over the session
        }
    }

    private void sending(Message message) {
        if (Channel.META_CONNECT.equals(message.getChannel())) {
            isReporting = message.getExt() != null && message.getExt().containsKey("update");
        } else if (tokens != null) {
            unanswered.add(message.getId());
        }
    }

    /** Whether no message is being processed, and no reply is awaited but that of a connect. */
    private boolean isQuiet() {
        return unanswered.isEmpty() && updates().allMatch(UpdateExtension::isIdle);
    }

    private Stream<UpdateExtension> updates() {
        return client.getExtensions().stream().filter(UpdateExtension.class::isInstance).map(UpdateExtension.class::cast);
    }

    /**
     * Lets the client make a handshake with the next token, which takes the session over, in the place of its next connect. The
     * server has to know of all that was received: it sends what is open again.
     */
    private void renew(List<Message.Mutable> messages) {
        boolean hasDeliveries = false;
        for (Message message : messages) {
            boolean isReply = message.isMeta() || message.isPublishReply();
            hasDeliveries |= !isReply;
            if (isReply && message.getId() != null) {
                unanswered.remove(message.getId());
            }
        }
        if (!tokens.isRenewed() || hasDeliveries || isReporting || !isQuiet() || !updates().allMatch(UpdateExtension::isConfirmed)) {
            return;
        }
        for (Message.Mutable message : messages) {
            if (Channel.META_CONNECT.equals(message.getChannel()) && message.isSuccessful()) {
                message.setSuccessful(false); // the client reads the advice of such a reply only
                message.put(Message.ERROR_FIELD, "401::the next token is there");
                tryAgain(message);
            }
        }
    }

    /** Changes the advice of a refusal that a later handshake may overcome, before the client reads it. */
    private void advise(Message.Mutable message) {
        Map<String, Object> advice = message.getAdvice();
        if (advice != null && advice.get(Message.TIMEOUT_FIELD) instanceof Number hold) {
            holdMs = hold.longValue();
        }
        if (message.isSuccessful()) {
            return;
        }
        if (tokens != null && isAboutToken(message)) {
            boolean isWanted = tokens.refused() || Refusal.EXPIRED.equals(Refusals.codeOf(message)) && hasHadSession;
            if (isWanted && Channel.META_HANDSHAKE.equals(message.getChannel())) {
                tryAgain(message);
            }
        } else if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
            Map<String, Object> told = Ext.part(message, "session");
            // With `retryAfter`, the last client is gone: the name is free after a time unless that client returns. Without, it
            // is there; but a refusal of the secret does not say whether it is.
            boolean maySucceed = options.waits || hasSentResume() || retryAfter(told) != null;
            if (Refusal.IDENTICAL_CLIENT.equals(told.get("errorCode")) && maySucceed) {
                tryAgain(message);
            }
        } else if (Channel.META_CONNECT.equals(message.getChannel()) && isTakenOver(message) && options.waits) {
            forget();
            tryAgain(message);
        }
    }

    private static boolean isAboutToken(Message message) {
        return message.isMeta() && (Refusals.codeOf(message) + ".").startsWith(Refusal.SECURITY + ".");
    }

    private synchronized boolean hasSentResume() {
        return hasSentResume;
    }

    private static void tryAgain(Message.Mutable message) {
        Map<String, Object> advice = message.getAdvice() == null ? new HashMap<>() : new HashMap<>(message.getAdvice());
        advice.put(Message.RECONNECT_FIELD, Message.RECONNECT_HANDSHAKE_VALUE);
        message.put(Message.ADVICE_FIELD, advice);
    }

    private static boolean isTakenOver(Message message) {
        return message.get(Message.ERROR_FIELD) instanceof String error && error.endsWith(Refusal.IDENTICAL_CLIENT);
    }

    private static Duration retryAfter(Map<String, Object> told) {
        return told.get("retryAfter") instanceof Number ms ? Duration.ofMillis(ms.longValue()) : null;
    }

    private void keep(String secret) {
        resume = secret;
        if (secret == null) {
            begun.clear(); // another client may have had the session when it comes back
        }
        try {
            if (file != null) {
                file.write(secret);
            }
        } catch (IOException failure) {
            LOG.error("the resume file cannot be written; the next process waits until its name is free", failure);
        }
    }
}

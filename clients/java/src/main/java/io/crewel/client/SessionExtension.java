package io.crewel.client;

import java.io.IOException;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.TransportListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Names the session of this client, and resumes it: after a lost session, and in the next process.
 *
 * <p>Every handshake carries {@code ext.session}. The reply contains {@code resume}, a secret that only the last login of a
 * session has. The next handshake sends it, and takes over the session with its subscriptions and its queue. While the name is
 * taken by a client that is gone, the extension makes the client try again until the server frees the name.
 */
public final class SessionExtension implements ClientSession.Extension {
    private static final Logger LOG = LoggerFactory.getLogger(SessionExtension.class);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final SessionOptions options;
    private final ResumeFile file;
    private String resume;
    private Map<String, Object> reply;
    private Refusal refusal;
    private boolean hasSentResume; // with the last handshake

    private SessionExtension(SessionOptions options) {
        this.options = options;
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
        SessionExtension extension = new SessionExtension(Objects.requireNonNull(options));
        client.addExtension(extension);
        LastHandshake.of(client); // for a publisher that is made after the login was refused
        // Extensions see a refused handshake after the client has read its advice; transport listeners see it before.
        client.addTransportListener(new TransportListener() {
            @Override
            public void onMessages(List<Message.Mutable> messages) {
                messages.forEach(extension::advise);
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
     * Returns why there is no session: why the server refused the last handshake, or that another client has taken over the
     * session.
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
    public synchronized boolean sendMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
            Map<String, Object> asked = new LinkedHashMap<>(Ext.part(message, "session"));
            asked.putAll(options.asked());
            hasSentResume = resume != null;
            if (hasSentResume) {
                asked.put("resume", resume);
            }
            byte[] nonce = new byte[16]; // by it, the server recognises a copy that a proxy sends
            RANDOM.nextBytes(nonce);
            asked.put("nonce", HexFormat.of().formatHex(nonce));
            Ext.put(message, "session", asked);
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
            }
        }
        if (isChanged) {
            try {
                options.onChange.accept(this);
            } catch (RuntimeException failure) {
                LOG.warn("a callback of the application failed", failure);
            }
        }
        return true;
    }

    private void answered(Message message) {
        Map<String, Object> told = Ext.part(message, "session");
        if (message.isSuccessful()) {
            reply = told;
            refusal = null;
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

    /** Changes the advice of a refusal that a later handshake may overcome, before the client reads it. */
    private void advise(Message.Mutable message) {
        if (message.isSuccessful()) {
            return;
        }
        if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
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
        try {
            if (file != null) {
                file.write(secret);
            }
        } catch (IOException failure) {
            LOG.error("the resume file cannot be written; the next process waits until its name is free", failure);
        }
    }
}

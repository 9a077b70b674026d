package io.crewel.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.client.BayeuxClient;

/**
 * Shows who is present on channels, and lets the session be present. A {@link Presence} continues in each new session, so it is
 * made once, before or after the handshake.
 */
public final class PresenceExtension implements ClientSession.Extension {
    private final BayeuxClient client;
    private final Map<String, Presence> open = new HashMap<>(); // by channel

    private PresenceExtension(BayeuxClient client) {
        this.client = client;
    }

    /**
     * Adds the extension to a client, before its handshake.
     *
     * @param client the client
     * @return the extension
     */
    public static PresenceExtension addTo(BayeuxClient client) {
        PresenceExtension extension = new PresenceExtension(Objects.requireNonNull(client));
        client.addExtension(extension);
        return extension;
    }

    /**
     * Follows the members of a channel. The session is not present until {@link Presence#enter}.
     *
     * @param channel the name of the channel
     * @return its presence, until that is closed
     * @throws IllegalStateException if the presence of the channel is open
     */
    public Presence follow(String channel) {
        Presence made = new Presence(client, channel, () -> forget(channel));
        synchronized (this) {
            if (open.putIfAbsent(channel, made) != null) {
                throw new IllegalStateException("the presence of " + channel + " is open: close it first");
            }
        }
        if (client.isHandshook()) {
            made.begin();
        }
        return made;
    }

    @Override
    public boolean rcvMeta(ClientSession session, Message.Mutable message) {
        if (Channel.META_HANDSHAKE.equals(message.getChannel()) && message.isSuccessful()) {
            List<Presence> all;
            synchronized (this) {
                all = new ArrayList<>(open.values());
            }
            all.forEach(Presence::begin);
        }
        return true;
    }

    private synchronized void forget(String channel) {
        open.remove(channel);
    }
}

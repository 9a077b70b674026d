package io.crewel.client;

import org.cometd.bayeux.ChannelId;
import org.cometd.bayeux.client.ClientSessionChannel;

/** A listener of an {@link UpdateExtension}. */
public final class Subscription {
    private final UpdateExtension extension;
    private final ClientSessionChannel channel;
    private final boolean isLocal;
    private final AsyncUpdateListener listener;
    private final ClientSessionChannel.MessageListener inner;

    /** Whether the application has ended it. The extension's lock guards it. */
    private boolean isUnwanted;

    /** @param isLocal whether the server does not know of it */
    Subscription(UpdateExtension extension, ClientSessionChannel channel, boolean isLocal, AsyncUpdateListener listener) {
        this.extension = extension;
        this.channel = channel;
        this.isLocal = isLocal;
        this.listener = listener;
        this.inner = (ignored, message) -> extension.called(this, message);
    }

    /**
     * Returns the channel or wildcard.
     *
     * @return its name
     */
    public String channel() {
        return channel.getId();
    }

    /** Ends the subscription. Messages that still come for it are acknowledged without a listener. */
    public void unsubscribe() {
        extension.end(this);
    }

    ClientSessionChannel target() {
        return channel;
    }

    AsyncUpdateListener listener() {
        return listener;
    }

    ClientSessionChannel.MessageListener inner() {
        return inner;
    }

    boolean isLocal() {
        return isLocal;
    }

    boolean isUnwanted() {
        return isUnwanted;
    }

    void setUnwanted() {
        isUnwanted = true;
    }

    /** Whether the client calls it now: a refused subscribe and a new handshake end subscriptions too. */
    boolean isHeard() {
        return isLocal ? channel.getListeners().contains(inner) : channel.getSubscribers().contains(inner);
    }

    boolean hears(String name) {
        return channel.getChannelId().matches(new ChannelId(name));
    }
}

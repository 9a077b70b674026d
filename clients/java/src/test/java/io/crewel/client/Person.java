package io.crewel.client;

import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.cometd.client.BayeuxClient.BackOffStrategy;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.eclipse.jetty.client.HttpClient;

/** A client of a test, with CometD's own transport. */
final class Person implements AutoCloseable {
    private final HttpClient http = new HttpClient();
    final BayeuxClient client;

    Person(Server server) throws Exception {
        http.start();
        client = new BayeuxClient(server.url(), new JettyHttpClientTransport(null, http));
        client.setBackOffStrategy(new BackOffStrategy.Constant(200));
    }

    /** Handshakes, does this after each successful one, and waits until the client is connected. */
    Person open(Consumer<Message> handshaken) {
        client.handshake(reply -> {
            if (reply.isSuccessful()) {
                handshaken.accept(reply);
            }
        });
        if (!client.waitFor(TimeUnit.SECONDS.toMillis(LiveTest.LIMIT_S), BayeuxClient.State.CONNECTED)) {
            throw new AssertionError("the client is not connected");
        }
        return this;
    }

    /** Goes without a word: the session stays. */
    void leave() throws Exception {
        client.abort();
        http.stop();
    }

    @Override
    public void close() throws Exception {
        client.disconnect();
        client.waitFor(TimeUnit.SECONDS.toMillis(2), BayeuxClient.State.DISCONNECTED);
        http.stop();
    }
}

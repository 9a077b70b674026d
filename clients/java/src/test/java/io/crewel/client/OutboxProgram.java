package io.crewel.client;

import java.nio.file.Path;

import org.cometd.client.BayeuxClient;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.eclipse.jetty.client.HttpClient;

/** A program that a test kills: it keeps numbers in an outbox, and prints each that is kept. */
final class OutboxProgram {
    private OutboxProgram() { }

    /** @param arguments the address of the server, the file, and the channel */
    public static void main(String[] arguments) throws Exception {
        HttpClient http = new HttpClient();
        http.start();
        BayeuxClient client = new BayeuxClient(arguments[0], new JettyHttpClientTransport(null, http));
        Outbox outbox = Outbox.addTo(client, Path.of(arguments[1]));
        client.handshake();
        for (long number = 0;; number++) {
            outbox.publish(arguments[2], number);
            System.out.println(number);
        }
    }
}

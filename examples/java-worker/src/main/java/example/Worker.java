package example;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

import io.crewel.client.Delivery;
import io.crewel.client.Refusal;
import io.crewel.client.SessionExtension;
import io.crewel.client.SessionOptions;
import io.crewel.client.UpdateException;
import io.crewel.client.UpdateExtension;
import io.crewel.client.UpdateOptions;
import org.cometd.client.BayeuxClient;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.eclipse.jetty.client.HttpClient;

/**
 * Bakes each order once, whatever is killed meanwhile: the server, or this process.
 *
 * <p>The session has a name and is persistent, so its orders wait at the server while no worker is there. The file with its
 * secret lets the next process take it over at once. With {@code maxOpen} 1, one order comes at a time. An order that was being
 * baked when the worker was killed comes again: the book of what was baked tells whether it is done.
 */
public final class Worker {
    private static final long MOST_PIZZAS = 10;

    private final Book book;

    private Worker(Book book) {
        this.book = book;
    }

    /** Processes a message, as {@code I_Callback.update} does. */
    void update(Delivery delivery) throws Exception {
        Map<String, Object> order = delivery.dataAsMap();
        long pizzas = ((Number) order.get("pizza")).longValue();
        if (pizzas > MOST_PIZZAS) {
            throw new UpdateException("user.update.error", "too many"); // a dead letter: an operator decides
        }
        if (book.hasPage(delivery.id())) {
            return; // it was baked, but the worker was killed before it could say so
        }
        book.write(delivery.id(), "baked " + pizzas);
    }

    /** The arguments: the address of the server, the name of the worker, and a directory of its own. */
    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[2]);
        HttpClient http = new HttpClient();
        http.start();
        BayeuxClient client = new BayeuxClient(args[0], new JettyHttpClientTransport(null, http));
        SessionExtension.addTo(client, new SessionOptions()
            .name(args[1])
            .persistent()
            .resumeFile(directory.resolve("resume"))
            .onChange(Worker::leaveIfRefused));
        UpdateExtension update = UpdateExtension.addTo(client, new UpdateOptions().maxOpen(1));
        Worker worker = new Worker(new Book(directory.resolve("book")));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> finish(client, update)));
        client.handshake(reply -> {
            if (reply.isSuccessful()) {
                update.subscribe("/orders", worker::update);
            }
        });
    }

    /**
     * Another worker has this name. While the last one counts as connected, or the store is away, the client tries again
     * itself.
     */
    private static void leaveIfRefused(SessionExtension session) {
        Refusal refusal = session.refusal();
        if (refusal != null && refusal.isFinal()) {
            System.err.println(refusal.message());
            new Thread(() -> System.exit(1)).start();
        }
    }

    /** Finishes the order in progress. The session stays at the server, with the orders that wait. */
    private static void finish(BayeuxClient client, UpdateExtension update) {
        try {
            update.stop(Duration.ofSeconds(5));
        } catch (InterruptedException hurried) {
            Thread.currentThread().interrupt();
        }
        client.abort();
    }
}

package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import io.crewel.client.PublishOptions;
import io.crewel.client.Publisher;
import org.cometd.client.BayeuxClient;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.eclipse.jetty.client.HttpClient;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WorkerTest {
    private static final long LIMIT_MS = 60_000;
    private static final int KILLS = 10;
    private static final int ORDERS_EACH = 5;

    @TempDir
    private Path directory;

    private final HttpClient http = new HttpClient();
    private Crewel server;
    private BayeuxClient shop;
    private Process worker;

    @BeforeEach
    void begin() throws Exception {
        server = new Crewel(directory);
        http.start();
        shop = new BayeuxClient(server.url(), new JettyHttpClientTransport(null, http));
        shop.handshake();
        startWorker();
    }

    @AfterEach
    void end() throws Exception {
        worker.destroyForcibly().waitFor();
        shop.abort();
        http.stop();
        server.close();
    }

    private void startWorker() throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("java.class.path");
        worker = new ProcessBuilder(
            java, "-cp", classes, "example.Worker", server.url(), "kitchen/1", directory.toString()
        ).inheritIO().start();
    }

    private List<String> baked() throws Exception {
        Path book = directory.resolve("book");
        return Files.exists(book) ? Files.readAllLines(book) : List.of();
    }

    private void waitForBaked(int number) throws Exception {
        for (long deadline = System.currentTimeMillis() + LIMIT_MS; baked().size() < number; Thread.sleep(20)) {
            assertTrue(System.currentTimeMillis() < deadline, () -> "the worker has not baked " + number);
            assertTrue(worker.isAlive(), "the worker has ended");
        }
    }

    private CompletableFuture<String> order(long pizzas) {
        PublishOptions options = PublishOptions.persistent();
        return new Publisher(shop).publish("/orders", Map.of("pizza", pizzas), options);
    }

    /** The first subscription exists when the first order is baked; before, orders would go to nobody. */
    private void waitForWorker() throws Exception {
        while (baked().isEmpty()) {
            order(1).get(LIMIT_MS, TimeUnit.MILLISECONDS);
        }
    }

    @Test
    void eachOrderIsBakedOnceThoughWorkerAndServerAreKilled() throws Exception {
        waitForWorker();
        List<CompletableFuture<String>> orders = new ArrayList<>();
        for (int kill = 0; kill < KILLS; kill++) {
            int before = baked().size();
            for (int number = 0; number < ORDERS_EACH; number++) {
                orders.add(order(2));
            }
            waitForBaked(before + 1 + kill % ORDERS_EACH); // so that it is killed at work, and not while it starts
            worker.destroyForcibly().waitFor();
            if (kill % 3 == 1) {
                server.kill();
                server.start();
            }
            startWorker();
        }
        List<String> ids = new ArrayList<>();
        for (CompletableFuture<String> each : orders) {
            ids.add(each.get(LIMIT_MS, TimeUnit.MILLISECONDS));
        }
        waitForLast(ids);
        List<String> lines = baked();
        assertEquals(lines.size(), new HashSet<>(lines).size(), "baked twice");
        assertTrue(lines.containsAll(ids.stream().map(id -> id + " baked 2").toList()), "an order is missing");
    }

    private void waitForLast(List<String> ids) throws Exception {
        List<String> missing = new ArrayList<>(ids);
        for (long deadline = System.currentTimeMillis() + LIMIT_MS; !missing.isEmpty(); Thread.sleep(20)) {
            baked().forEach(line -> missing.remove(line.split(" ")[0]));
            assertTrue(System.currentTimeMillis() < deadline, () -> "not baked: " + missing);
        }
    }

    @Test
    void anOrderThatIsTooLargeIsADeadLetterAndTheNextIsBaked() throws Exception {
        waitForWorker();
        int before = baked().size();
        order(20).get(LIMIT_MS, TimeUnit.MILLISECONDS);
        String last = order(3).get(LIMIT_MS, TimeUnit.MILLISECONDS);
        waitForBaked(before + 1);
        waitForLast(List.of(last));
        String letters = "";
        // The server stores it a little after the worker has rejected the message.
        for (long deadline = System.currentTimeMillis() + LIMIT_MS; !letters.contains("\"too many\""); Thread.sleep(20)) {
            assertTrue(System.currentTimeMillis() < deadline, letters);
            letters = server.deadLetters("/orders");
        }
        assertTrue(letters.contains("\"user.update.error\""), letters);
    }

    @Test
    void aWorkerThatIsStoppedFinishesItsOrderAndLeavesItsSession() throws Exception {
        waitForWorker();
        worker.destroy();
        assertTrue(worker.waitFor(LIMIT_MS, TimeUnit.MILLISECONDS));
        String id = order(4).get(LIMIT_MS, TimeUnit.MILLISECONDS);
        startWorker();
        waitForLast(List.of(id));
    }
}

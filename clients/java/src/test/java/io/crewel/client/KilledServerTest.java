package io.crewel.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * What a publisher and a worker notice of a server that is killed: nothing is lost, and nothing is processed for a second key.
 */
class KilledServerTest {
    private static final int MESSAGES = 60;

    @Test
    void whatIsPublishedWhileTheServerIsKilledIsProcessed(@TempDir Path directory) throws Exception {
        try (Server server = new Server(directory); Person worker = new Person(server); Person shop = new Person(server)) {
            SessionExtension.addTo(worker.client, new SessionOptions().name("worker/1").persistent());
            UpdateExtension update = UpdateExtension.addTo(worker.client);
            Set<Object> processed = new ConcurrentSkipListSet<>();
            CountDownLatch all = new CountDownLatch(MESSAGES);
            worker.open(reply -> update.subscribe("/orders", delivery -> {
                if (processed.add(delivery.data())) {
                    all.countDown();
                }
            }));
            Publisher publisher = new Publisher(shop.open(reply -> { }).client);
            List<CompletableFuture<String>> published = new ArrayList<>();
            for (long number = 0; number < MESSAGES; number++) {
                published.add(publisher.publish("/orders", number, PublishOptions.persistent()));
                if (number == MESSAGES / 3 || number == 2 * MESSAGES / 3) {
                    server.kill();
                    server.start();
                }
            }
            for (CompletableFuture<String> each : published) {
                each.get(60, TimeUnit.SECONDS);
            }
            Assertions.assertTrue(all.await(60, TimeUnit.SECONDS), () -> "processed: " + processed);
            assertEquals(MESSAGES, processed.size());
            assertEquals(MESSAGES, Set.copyOf(published.stream().map(CompletableFuture::join).toList()).size());
        }
    }
}

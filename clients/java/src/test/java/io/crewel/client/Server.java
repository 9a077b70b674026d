package io.crewel.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.BindException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import org.eclipse.jetty.util.ajax.JSON;

/** A real {@code crewel serve} with its own store, in a process that a test may kill. The variable CREWEL names the command. */
final class Server implements AutoCloseable {
    private static final String TOKEN = "the-admin-token-of-tests";

    private final Path directory;
    private final int port;
    private final List<String> sets;
    private Process process;

    Server(Path directory, String... sets) throws IOException {
        this.directory = directory;
        this.sets = List.of(sets);
        port = freePort();
        start();
    }

    /**
     * A port on which nothing listens, below those that Linux gives to outgoing connections: a client that connects again could
     * take one of these while the server is away.
     */
    private static int freePort() throws IOException {
        for (int tries = 0;; tries++) {
            try (ServerSocket socket = new ServerSocket(ThreadLocalRandom.current().nextInt(15_000, 32_768))) {
                return socket.getLocalPort();
            } catch (BindException taken) {
                if (tries == 1000) {
                    throw taken;
                }
            }
        }
    }

    /** Starts it, and waits until it is ready. */
    void start() throws IOException {
        List<String> command = new ArrayList<>(List.of(
            System.getenv().getOrDefault("CREWEL", "crewel"), "serve", "--port", String.valueOf(port),
            "--data-dir", directory.resolve("data").toString()
        ));
        for (String set : List.of(
            "admin.token=" + TOKEN, "bayeux.max_interval_ms=1500", "log.level=error", "bayeux.timeout_ms=5000"
        )) {
            command.add("--set=" + set);
        }
        sets.forEach(set -> command.add("--set=" + set));
        ProcessBuilder builder = new ProcessBuilder(command).directory(directory.toFile());
        process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line == null || !line.startsWith("ready "); line = lines.readLine()) {
            if (line == null) {
                throw new IllegalStateException(String.join(" ", command) + " ended");
            }
        }
    }

    /** Kills it, as {@code kill -9} does. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    String url() {
        return "http://127.0.0.1:" + port + "/cometd";
    }

    /** What an operator asks. */
    Map<String, Object> admin(String method, String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/admin/api" + path))
            .method(method, HttpRequest.BodyPublishers.noBody())
            .header("Authorization", "Bearer " + TOKEN)
            .build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() / 100 != 2) {
            throw new AssertionError(response.body());
        }
        return Ext.fields(new JSON().fromJSON(response.body()));
    }

    @Override
    public void close() throws Exception {
        process.destroy();
        if (!process.waitFor(20, TimeUnit.SECONDS)) {
            process.destroyForcibly();
        }
    }
}

package example;

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
import java.util.concurrent.ThreadLocalRandom;

/** {@code crewel serve} in a process of its own, which a test may kill. The variable CREWEL names the command. */
final class Crewel implements AutoCloseable {
    private static final String TOKEN = "the-token-of-an-operator";

    private final Path directory;
    private final int port;
    private Process process;

    Crewel(Path directory) throws IOException {
        this.directory = directory;
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

    void start() throws IOException {
        String command = System.getenv().getOrDefault("CREWEL", "crewel");
        process = new ProcessBuilder(
            command, "serve", "--port", "" + port, "--data-dir", directory.resolve("data").toString(),
            "--set", "admin.token=" + TOKEN, "--set", "log.level=error"
        ).directory(directory.toFile()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = lines.readLine();
        while (line != null && !line.startsWith("ready ")) {
            line = lines.readLine();
        }
        if (line == null) {
            throw new IllegalStateException(command + " serve ended");
        }
    }

    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    String url() {
        return "http://127.0.0.1:" + port + "/cometd";
    }

    /** The dead letters of the channel, as JSON. */
    String deadLetters(String channel) throws Exception {
        URI address = URI.create("http://127.0.0.1:" + port + "/admin/api/dead-letters?channel=" + channel);
        HttpRequest request = HttpRequest.newBuilder(address).header("Authorization", "Bearer " + TOKEN).build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
    }

    @Override
    public void close() throws Exception {
        process.destroy();
        process.waitFor();
    }
}

package example;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** {@code crewel mock salesforce} in a process of its own, controlled over HTTP. */
final class Mock implements AutoCloseable {
    private final Process process;
    private final Map<String, String> addresses = new HashMap<>();

    Mock() throws Exception {
        String command = System.getenv().getOrDefault("CREWEL", "crewel");
        process = new ProcessBuilder(command, "mock", "salesforce").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        while (!addresses.containsKey("ready")) {
            String line = lines.readLine();
            if (line == null) {
                throw new IllegalStateException(command + " mock salesforce ended");
            }
            String[] words = line.split(" ", 2);
            addresses.put(words[0], words[1]);
        }
    }

    String loginUrl() {
        return addresses.get("login");
    }

    /** One request to the control address; the body is JSON. */
    String call(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(addresses.get("control") + "/_mock/" + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new AssertionError(response.body());
        }
        return response.body();
    }

    @Override
    public void close() throws Exception {
        process.destroy();
        process.waitFor();
    }
}

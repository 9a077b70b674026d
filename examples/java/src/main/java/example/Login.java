package example;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;

import org.eclipse.jetty.util.ajax.JSON;

/** Logs in with a user name and a password, by OAuth. */
public record Login(String loginUrl, String username, String password) {
    public record Token(String accessToken, String instanceUrl) { }

    public Token token() {
        String form = "grant_type=password&username=" + username + "&password=" + password;
        HttpRequest request = HttpRequest.newBuilder(URI.create(loginUrl + "/services/oauth2/token"))
            .header("Content-Type", "application/x-www-form-urlencoded")
            .POST(HttpRequest.BodyPublishers.ofString(form))
            .build();
        try {
            String body = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
            Map<?, ?> answer = (Map<?, ?>) new JSON().fromJSON(body);
            return new Token((String) answer.get("access_token"), (String) answer.get("instance_url"));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}

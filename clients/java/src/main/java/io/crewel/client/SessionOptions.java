package io.crewel.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** The fields of {@code ext.session} in each handshake, and where the secret of the session is kept. */
public final class SessionOptions {
    private final Map<String, Object> fields = new LinkedHashMap<>();
    Supplier<String> token;
    Path resumeFile;
    boolean waits;
    Consumer<SessionExtension> onChange = session -> { };

    /** Makes options for an anonymous session. */
    public SessionOptions() { }

    /**
     * Sets the name of the session.
     *
     * @param name such as {@code joe/1}: session 1 of the subject joe
     * @return this
     */
    public SessionOptions name(String name) {
        return field("name", name);
    }

    /**
     * Demands a session that survives a restart of the server: the handshake is refused without a name, CometD's AckExtension,
     * which {@link UpdateExtension} adds, and a store.
     *
     * @return this
     */
    public SessionOptions persistent() {
        return field("persistent", true);
    }

    /**
     * Sets how long the session lives without its client.
     *
     * @param limit the time; a day by default
     * @return this
     */
    public SessionOptions timeout(Duration limit) {
        return field("timeout", limit.toMillis());
    }

    /**
     * Sets what returns a token, such as a JSON Web Token. It is called before the first handshake, before the token expires,
     * and when the server has refused it; for a token that does not say when it expires, before each handshake.
     *
     * @param source called in a thread of its own, so that it may wait for an answer, for ten seconds; null is no token
     * @return this
     */
    public SessionOptions token(Supplier<String> source) {
        this.token = Objects.requireNonNull(source);
        return this;
    }

    /**
     * Sets any other field.
     *
     * @param name such as {@code queue}
     * @param value its JSON value
     * @return this
     */
    public SessionOptions field(String name, Object value) {
        fields.put(Objects.requireNonNull(name), value);
        return this;
    }

    /**
     * Sets the file that keeps the secret of the session, readable for its owner only. With it, the next process takes the
     * session over at once; without, after the server has noticed that the last one is gone.
     *
     * @param file the file; each process needs one of its own
     * @return this
     */
    public SessionOptions resumeFile(Path file) {
        this.resumeFile = Objects.requireNonNull(file);
        return this;
    }

    /**
     * Makes the client try again while another one is connected with its name, and not take the session over with a token.
     *
     * @return this
     */
    public SessionOptions waits() {
        this.waits = true;
        return this;
    }

    /**
     * Sets what is called after each reply to a handshake, and when another client takes the session over.
     *
     * @param callback called with the extension
     * @return this
     */
    public SessionOptions onChange(Consumer<SessionExtension> callback) {
        this.onChange = Objects.requireNonNull(callback);
        return this;
    }

    Map<String, Object> asked() {
        return fields;
    }
}

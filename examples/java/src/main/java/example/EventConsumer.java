package example;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiConsumer;

import org.cometd.bayeux.Channel;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.eclipse.jetty.client.HttpClient;
import org.eclipse.jetty.client.Request;

/**
 * Consumes one channel of Salesforce's streaming API, in the steps of EMP connector: log in, handshake with the extension for
 * replays, subscribe after the last event; and the same again, with a new token, when the session is lost.
 */
public class EventConsumer implements AutoCloseable {
    private final Login login;
    private final String channel;
    private final BiConsumer<Long, Map<String, Object>> handler;
    private final Map<String, Object> replay = new ConcurrentHashMap<>();
    private final HttpClient http = new HttpClient();
    private volatile Login.Token token;
    private volatile BayeuxClient client;
    private volatile boolean isClosed;

    /** Calls {@code handler} with the replay id and the payload of each event after {@code position}. */
    public EventConsumer(Login login, String channel, long position, BiConsumer<Long, Map<String, Object>> handler) {
        this.login = login;
        this.channel = channel;
        this.handler = handler;
        replay.put(channel, position);
    }

    public void start() throws Exception {
        http.start();
        connect();
    }

    private void connect() {
        if (isClosed) {
            return;
        }
        token = login.token();
        JettyHttpClientTransport transport = new JettyHttpClientTransport(null, http) {
            @Override
            protected void customize(Request request) {
                request.headers(headers -> headers.put("Authorization", "Bearer " + token.accessToken()));
            }
        };
        BayeuxClient made = new BayeuxClient(token.instanceUrl() + "/cometd/60.0", transport);
        made.addExtension(new Replay());
        made.getChannel(Channel.META_HANDSHAKE).addListener((ClientSessionChannel.MessageListener) (meta, message) -> {
            if (message.isSuccessful()) {
                subscribe(made);
            } else if (isFinal(message)) {
                reconnect(made);
            }
        });
        made.getChannel(Channel.META_CONNECT).addListener((ClientSessionChannel.MessageListener) (meta, message) -> {
            if (!message.isSuccessful() && isFinal(message)) {
                reconnect(made);
            }
        });
        client = made;
        made.handshake();
    }

    private void subscribe(BayeuxClient session) {
        session.getChannel(channel).subscribe((ignored, message) -> {
            Map<String, Object> data = message.getDataAsMap();
            @SuppressWarnings("unchecked")
            Map<String, Object> payload = (Map<String, Object>) data.get("payload");
            handler.accept(replayId(message), payload);
        });
    }

    /** The advice says that this client must not continue: its token was revoked, or its session is gone for good. */
    private static boolean isFinal(Message message) {
        Map<String, Object> advice = message.getAdvice();
        return advice != null && Message.RECONNECT_NONE_VALUE.equals(advice.get(Message.RECONNECT_FIELD));
    }

    private void reconnect(BayeuxClient lost) {
        new Thread(() -> {
            lost.abort();
            connect();
        }).start();
    }

    private static Long replayId(Message message) {
        Object event = message.getDataAsMap().get("event");
        return ((Number) ((Map<?, ?>) event).get("replayId")).longValue();
    }

    /** Sends with each subscribe after which event to begin, and keeps the number of the last one. */
    private final class Replay implements ClientSession.Extension {
        @Override
        public boolean sendMeta(ClientSession session, Message.Mutable message) {
            if (Channel.META_HANDSHAKE.equals(message.getChannel())) {
                message.getExt(true).put("replay", true);
            } else if (Channel.META_SUBSCRIBE.equals(message.getChannel())) {
                message.getExt(true).put("replay", new HashMap<>(replay));
            }
            return true;
        }

        @Override
        public boolean rcv(ClientSession session, Message.Mutable message) {
            if (channel.equals(message.getChannel()) && message.getData() != null) {
                replay.put(channel, replayId(message));
            }
            return true;
        }
    }

    @Override
    public void close() throws Exception {
        isClosed = true;
        client.disconnect(5000);
        http.stop();
    }
}

package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class EventConsumerTest {
    private static final String ORDERS = "/event/Order__e";
    private final BlockingQueue<Object> handled = new LinkedBlockingQueue<>();
    private Mock mock;
    private EventConsumer consumer;

    @BeforeEach
    void start() throws Exception {
        mock = new Mock();
        Login login = new Login(mock.loginUrl(), "user@example.com", "secret");
        consumer = new EventConsumer(login, ORDERS, -1, (id, payload) -> handled.add(payload.get("No__c")));
        consumer.start();
        mock.call("POST", "wait", "{\"channel\": \"" + ORDERS + "\", \"timeout_ms\": 60000}");
        publish(1);
        assertHandled(1);
    }

    @AfterEach
    void end() throws Exception {
        consumer.close();
        mock.close();
    }

    @Test
    void aLostSessionLosesNoOrder() throws Exception {
        mock.call("POST", "forget", "{}");
        publish(2);
        assertHandled(2);
        assertEquals("{\"missed\": {}}", mock.call("GET", "missed", ""));
    }

    @Test
    void aRevokedTokenLosesNoOrder() throws Exception {
        mock.call("POST", "revoke", "{}");
        publish(2);
        assertHandled(2);
    }

    @Test
    void aSessionThatMustNotContinueIsMadeAgain() throws Exception {
        mock.call("PUT", "script", "{\"script\": \"next connect: unknown client, disconnect\"}");
        publish(2);
        publish(3);
        assertHandled(2);
        assertHandled(3);
    }

    private void publish(int number) throws Exception {
        mock.call("POST", "publish", "{\"channel\": \"" + ORDERS + "\", \"data\": {\"No__c\": " + number + "}}");
    }

    private void assertHandled(long number) throws Exception {
        assertEquals(number, handled.poll(60, TimeUnit.SECONDS));
    }
}

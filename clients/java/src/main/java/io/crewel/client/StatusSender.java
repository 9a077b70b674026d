package io.crewel.client;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import org.cometd.bayeux.Message;
import org.cometd.client.BayeuxClient;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends the statuses of one client: with the next connect or, while a connect is held, in a publish of their own, and again
 * until the server has confirmed them. The extension's lock guards it.
 */
final class StatusSender {
    private static final Logger LOG = LoggerFactory.getLogger(UpdateExtension.class);
    private static final String SERVICE = "/service/update";
    private static final int ROOM = 16_384; // bytes of statuses in one message, or half of what the server takes
    private static final long COLLECT_MS = 10; // a moment in which statuses gather, so that many travel in one message
    private static final long RETRY_MS = 1000;
    private static final long LONGEST_RETRY_MS = 8000;

    private final BayeuxClient client;
    private final UpdateOptions options;
    private final Object lock;
    private final Set<String> refused = ConcurrentHashMap.newKeySet(); // errors that the log has
    private Ledger ledger;
    private int room = ROOM;
    private boolean isGranted; // whether the server accepts statuses
    private String heldConnect; // the id of the connect that is on its way or held
    private boolean isTelling;
    private Object planned; // the publish that is due in a moment; null without one
    private Runnable goodbye; // waits for the statuses that are being told
    private int refusals; // of statuses in a row

    StatusSender(BayeuxClient client, UpdateOptions options, Object lock) {
        this.client = client;
        this.options = options;
        this.lock = lock;
        this.ledger = new Ledger(options.remembered);
    }

    boolean isGranted() {
        synchronized (lock) {
            return isGranted;
        }
    }

    /** The messages of the current session. */
    Ledger ledger() {
        synchronized (lock) {
            return ledger;
        }
    }

    /** A handshake is on its way. */
    void handshakes() {
        isGranted = false;
        heldConnect = null;
        isTelling = false;
    }

    /** There is a session: a new one, or the one before. */
    void negotiated(boolean granted, boolean isReconnected, long limit) {
        isGranted = granted;
        room = (int) Math.min(ROOM, limit / 2);
        if (isReconnected) {
            ledger.statuses.release(); // the same session: it receives now what it did not receive before
        } else {
            ledger.close();
            ledger = new Ledger(options.remembered);
            lock.notifyAll();
        }
        if (!granted) {
            LOG.warn("not granted, so listeners report nothing: the server lacks `ack` or `update` in bayeux.extensions");
        }
    }

    /** Lets a connect carry the waiting statuses. */
    void connects(Message.Mutable connect) {
        if (!isGranted) {
            return;
        }
        ledger.statuses.release(heldConnect == null ? connect.getId() : heldConnect); // an earlier one was not answered
        heldConnect = connect.getId();
        List<Map<String, Object>> taken = ledger.statuses.take(heldConnect, room);
        if (!taken.isEmpty()) {
            Ext.put(connect, "update", taken);
        }
        planned = null; // what is waiting from now on has a moment of its own
        changed(); // there may be more of them than fit
    }

    /** The reply to a connect. */
    void connected(Message reply) {
        Ledger told;
        synchronized (lock) {
            if (Objects.equals(reply.getId(), heldConnect)) {
                heldConnect = null;
            }
            told = ledger;
            if (!reply.isSuccessful()) {
                told.statuses.release(reply.getId());
                return;
            }
        }
        confirmed(told, reply.getId(), reply);
    }

    private void confirmed(Ledger told, Object carrier, Message reply) {
        synchronized (lock) {
            told.statuses.confirm(carrier);
            lock.notifyAll();
        }
        for (Object status : Ext.list(Ext.part(reply, "update").get("rejected"))) {
            LOG.debug("the server did not take {}", status);
            Map<String, Object> fields = Ext.fields(status);
            // UNCLAIMED is our word, and not the application's: the message has ended.
            if (!Ledger.UNCLAIMED.equals(fields.get("state"))) {
                call(() -> options.onRejected.accept(fields));
            }
        }
    }

    /** There may be statuses to send. The caller has the lock. */
    void changed() {
        if (planned == null && ledger.statuses.areWaiting()) {
            Object due = new Object();
            planned = due;
            later(COLLECT_MS, () -> {
                synchronized (lock) {
                    if (planned != due) {
                        return; // a connect has taken what it was for
                    }
                    planned = null;
                }
                tell();
            });
        }
    }

    /** Publishes the waiting statuses, unless the next connect is about to carry them. */
    private void tell() {
        Ledger told;
        Object carrier = new Object();
        List<Map<String, Object>> taken;
        synchronized (lock) {
            if (!isGranted || isTelling || heldConnect == null || client.isDisconnected()) {
                return;
            }
            told = ledger;
            taken = told.statuses.take(carrier, room);
            if (taken.isEmpty()) {
                return;
            }
            isTelling = true;
        }
        client.getChannel(SERVICE).publish(taken, reply -> told(told, carrier, reply));
    }

    private void told(Ledger told, Object carrier, Message reply) {
        long wait;
        synchronized (lock) {
            isTelling = false;
            if (reply.isSuccessful()) {
                refusals = 0;
                wait = 0;
            } else {
                told.statuses.release(carrier);
                boolean isRefused = !reply.containsKey("failure");
                wait = isRefused ? Math.min(RETRY_MS << Math.min(refusals++, 10), LONGEST_RETRY_MS) : RETRY_MS;
            }
        }
        if (reply.isSuccessful()) {
            confirmed(told, carrier, reply);
            synchronized (lock) {
                changed();
            }
        } else {
            later(wait, this::tell); // unless a connect takes them before
        }
        Runnable go;
        synchronized (lock) {
            go = goodbye;
            goodbye = null;
        }
        if (go != null) {
            go.run();
        }
    }

    /** A refusal has a lasting reason, such as a policy: log it for the developer, but once. False for any other message. */
    boolean complains(Message reply) {
        if (!SERVICE.equals(reply.getChannel()) || !reply.isPublishReply()) {
            return false;
        }
        Object error = reply.get(Message.ERROR_FIELD);
        if (!reply.isSuccessful() && error != null && !reply.containsKey("failure") && refused.add(String.valueOf(error))) {
            LOG.error("the server refuses statuses ({}); those that no connect takes are lost when the client goes", error);
        }
        return true;
    }

    /** The goodbye waits for what is on its way, because requests over HTTP overtake each other; the last connect, too. */
    void tellBeforeGoing(Runnable go) {
        synchronized (lock) {
            if (heldConnect != null) {
                ledger.statuses.release(heldConnect);
            }
        }
        tellBeforeGoing(new Object(), go);
    }

    private void tellBeforeGoing(Object carrier, Runnable go) {
        List<Map<String, Object>> taken;
        synchronized (lock) {
            if (isTelling) {
                goodbye = () -> tellBeforeGoing(carrier, go);
                return;
            }
            taken = ledger.statuses.take(carrier, room);
        }
        if (taken.isEmpty()) {
            go.run();
        } else {
            client.getChannel(SERVICE).publish(taken, reply -> tellBeforeGoing(carrier, go));
        }
    }

    static void later(long ms, Runnable task) {
        CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS).execute(task);
    }

    static void call(Runnable callback) {
        try {
            callback.run();
        } catch (RuntimeException failure) {
            LOG.warn("a callback of the application failed", failure);
        }
    }
}

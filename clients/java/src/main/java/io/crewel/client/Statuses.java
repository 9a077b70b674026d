package io.crewel.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The statuses that the server has not confirmed: one for each message, and the request that carries it, if any. */
final class Statuses {
    private final Map<Object, Entry> open = new LinkedHashMap<>();

    private static final class Entry {
        final Map<String, Object> status;
        Object carrier;

        Entry(Map<String, Object> status) {
            this.status = status;
        }
    }

    /** Notes the status of a message. A status that does not end it has no effect after one that does. */
    void put(Map<String, Object> status) {
        Entry known = open.get(status.get("id"));
        if (known == null || isEnd(status) || !isEnd(known.status)) {
            open.put(status.get("id"), new Entry(status));
        }
    }

    /** Notes that a message is in this state. */
    void put(String id, String state) {
        Map<String, Object> status = new LinkedHashMap<>();
        status.put("id", id);
        status.put("state", state);
        put(status);
    }

    /**
     * Statuses that no request carries: at least one, as many as fit into so many bytes. This request carries them now.
     */
    List<Map<String, Object>> take(Object carrier, int room) {
        List<Map<String, Object>> taken = new ArrayList<>();
        int left = room;
        for (Entry entry : open.values()) {
            if (entry.carrier == null) {
                left -= length(entry.status);
                if (left < 0 && !taken.isEmpty()) {
                    break;
                }
                entry.carrier = carrier;
                taken.add(entry.status);
            }
        }
        return taken;
    }

    /** A request had a reply: the server has the statuses that it carried. */
    void confirm(Object carrier) {
        open.values().removeIf(entry -> carrier.equals(entry.carrier));
    }

    /** A request probably failed: its statuses must be sent again. */
    void release(Object carrier) {
        open.values().stream().filter(entry -> carrier.equals(entry.carrier)).forEach(entry -> entry.carrier = null);
    }

    /** All requests probably failed. */
    void release() {
        open.values().forEach(entry -> entry.carrier = null);
    }

    /** Whether there are statuses that no request carries. */
    boolean areWaiting() {
        return open.values().stream().anyMatch(entry -> entry.carrier == null);
    }

    /** Whether the server has confirmed all of them. */
    boolean isEmpty() {
        return open.isEmpty();
    }

    private static boolean isEnd(Map<String, Object> status) {
        return !"WORKING".equals(status.get("state")) && !"UNCLAIMED".equals(status.get("state"));
    }

    /** The bytes of a status in JSON, at least. */
    private static int length(Map<String, Object> status) {
        int length = 2;
        for (Map.Entry<String, Object> each : status.entrySet()) {
            length += each.getKey().length() + each.getValue().toString().getBytes(StandardCharsets.UTF_8).length + 6;
        }
        return length;
    }
}

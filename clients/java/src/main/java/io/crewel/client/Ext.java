package io.crewel.client;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.cometd.bayeux.Message;

/** What stands in {@code ext} of a message, whatever the server sent. */
final class Ext {
    private Ext() { }

    /** This part of {@code ext}, such as {@code update}; empty if there is none. */
    static Map<String, Object> part(Message message, String name) {
        Map<String, Object> ext = message.getExt();
        return ext == null ? Map.of() : fields(ext.get(name));
    }

    /** Sets a part of {@code ext}, in a copy: the application may use its own map for several messages. */
    static void put(Message.Mutable message, String name, Object value) {
        Map<String, Object> ext = message.getExt();
        Map<String, Object> copy = ext == null ? new HashMap<>() : new HashMap<>(ext);
        copy.put(name, value);
        message.put(Message.EXT_FIELD, copy);
    }

    /** A JSON object; empty if it is none. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> fields(Object value) {
        return value instanceof Map ? (Map<String, Object>) value : Map.of();
    }

    /** A JSON array; empty if it is none. JSON libraries differ in what they make of one. */
    static List<?> list(Object value) {
        return value instanceof List<?> list ? list : value instanceof Object[] array ? Arrays.asList(array) : List.of();
    }

    /** A text that is not empty, or null. */
    static String text(Object value) {
        return value instanceof String text && !text.isEmpty() ? text : null;
    }

    /** A whole number; {@code usual} if it is none. */
    static long whole(Object value, long usual) {
        return value instanceof Number number ? number.longValue() : usual;
    }
}

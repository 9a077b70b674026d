package io.crewel.client;

import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.ClientTransport;
import org.cometd.common.JSONContext;
import org.cometd.common.JettyJSONContextClient;

/** What is known of the JSON of a value before it is written: JSON libraries write NaN and halves of surrogate pairs as they are. */
final class Json {
    private static final int DEEPEST = 250;

    private Json() { }

    /** A value in another one, and its place, such as {@code data.price[2]}. */
    private record Part(String path, Object value) { }

    /** What JSON cannot represent in the value, such as {@code data.price[2] is NaN, which JSON cannot represent}; or null. */
    static String fault(String name, Object value) {
        return fault(name, new Part(name, value), Collections.newSetFromMap(new IdentityHashMap<>()));
    }

    /** The first number with more digits than JSON libraries read back, and its place; or null. */
    static String tooPrecise(String name, Object value) {
        Part part = new Part(name, value);
        boolean isLarge = value instanceof BigInteger whole && whole.bitLength() >= Long.SIZE;
        if (isLarge || value instanceof BigDecimal decimal && isTooPrecise(decimal)) {
            return name + " has more digits than a number of JSON that is read back: give it as text";
        }
        List<Part> parts = new ArrayList<>();
        addParts(part, parts);
        return parts.stream().map(each -> tooPrecise(each.path(), each.value())).filter(Objects::nonNull).findFirst().orElse(null);
    }

    private static boolean isTooPrecise(BigDecimal decimal) {
        double read = decimal.doubleValue();
        // A text without an exponent is read as a whole number first, which has the bits of a long.
        return Double.isInfinite(read) || decimal.compareTo(BigDecimal.valueOf(read)) != 0
            || decimal.scale() >= 0 && decimal.toBigInteger().bitLength() >= Long.SIZE;
    }

    /** The same for a part; {@code path} has the values in which it is. */
    private static String fault(String name, Part part, Set<Object> path) {
        String wrong = wrong(part.value());
        if (wrong != null) {
            return part.path() + " is " + wrong + ", which JSON cannot represent";
        }
        List<Part> parts = new ArrayList<>();
        addParts(part, parts);
        if (parts.isEmpty()) {
            return null;
        }
        if (path.size() == DEEPEST) {
            return name + " is nested more than " + DEEPEST + " deep";
        }
        if (!path.add(part.value())) {
            return part.path() + " contains itself, which JSON cannot represent";
        }
        for (Part each : parts) {
            String fault = fault(name, each, path);
            if (fault != null) {
                return fault;
            }
        }
        path.remove(part.value());
        return null;
    }

    private static String wrong(Object value) {
        boolean isNumber = value instanceof Double || value instanceof Float;
        if (isNumber && !Double.isFinite(((Number) value).doubleValue())) {
            return value.toString();
        }
        boolean isText = value instanceof CharSequence || value instanceof Character;
        return isText && !Failure.cut(value.toString(), Integer.MAX_VALUE).equals(value.toString())
            ? "text that is not valid Unicode" : null;
    }

    /** The JSON library of a client: that of the transport with which it begins. */
    static JSONContext.Client of(BayeuxClient client) {
        ClientTransport transport = client.getTransport(client.getAllowedTransports().get(0));
        Object given = transport.getOption(ClientTransport.JSON_CONTEXT_OPTION);
        if (given instanceof JSONContext.Client made) {
            return made;
        }
        if (given == null) {
            return new JettyJSONContextClient();
        }
        try { // the transport makes one of the class with this name, too
            Class<?> named = Class.forName(given.toString(), true, Thread.currentThread().getContextClassLoader());
            return (JSONContext.Client) named.getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException failure) {
            throw new IllegalArgumentException("the option " + ClientTransport.JSON_CONTEXT_OPTION + " is " + given, failure);
        }
    }

    /** The JSON of a value, as the client writes it. */
    static String written(BayeuxClient client, Object value) {
        return of(client).getGenerator().generate(value);
    }

    private static void addParts(Part part, List<Part> parts) {
        Object value = part.value();
        if (value instanceof Map<?, ?> fields) {
            fields.forEach((name, each) -> {
                parts.add(new Part("a name in " + part.path(), String.valueOf(name)));
                parts.add(new Part(part.path() + "." + name, each));
            });
        } else if (value instanceof Iterable<?> list) {
            int number = 0;
            for (Object each : list) {
                parts.add(new Part(part.path() + "[" + number++ + "]", each));
            }
        } else if (value != null && value.getClass().isArray()) {
            for (int number = 0; number < Array.getLength(value); number++) {
                parts.add(new Part(part.path() + "[" + number + "]", Array.get(value, number)));
            }
        }
    }
}

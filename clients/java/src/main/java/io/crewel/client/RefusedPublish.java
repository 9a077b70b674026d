package io.crewel.client;

/**
 * A publish of an {@link Outbox} that the server refused for good.
 *
 * @param key its idempotency key
 * @param channel the channel
 * @param data the data, as the JSON library of the client reads it
 * @param errorCode the dotted code of the refusal
 * @param message words for people
 */
public record RefusedPublish(String key, String channel, Object data, String errorCode, String message) { }

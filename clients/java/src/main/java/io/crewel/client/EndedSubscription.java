package io.crewel.client;

/**
 * A subscription that the server has ended, for example because its filter is too expensive.
 *
 * @param subscription the channel or wildcard
 * @param errorCode the dotted code, or null
 * @param message words for people, or null
 */
public record EndedSubscription(String subscription, String errorCode, String message) { }

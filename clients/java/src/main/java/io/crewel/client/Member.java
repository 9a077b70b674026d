package io.crewel.client;

/**
 * A member of a channel: a subject with all its sessions that are present, or a session without a subject.
 *
 * @param id the subject, or a text that begins with {@code anonymous/}
 * @param sessions how many of its sessions are present; 0 of a member that has left
 * @param data what one of its sessions has set last, as the JSON library of the client reads it
 */
public record Member(String id, long sessions, Object data) { }

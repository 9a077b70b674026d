package io.crewel.client;

/**
 * A change of one member.
 *
 * @param event what has happened
 * @param member the member as it is now; if it has left, with its last data
 */
public record PresenceChange(Event event, Member member) {
    /** What can happen to a member. */
    public enum Event {
        /** Its first session has entered. */
        JOIN,
        /** It has other data, or another number of sessions. */
        UPDATE,
        /** Its last session has left, or has ended. */
        LEAVE
    }
}

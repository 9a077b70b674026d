package io.crewel.client;

/** Processes messages, as the {@code update} method of xmlBlaster's {@code I_Callback} does. */
@FunctionalInterface
public interface UpdateListener {
    /**
     * Processes a message. To return acknowledges it.
     *
     * @param delivery the message
     * @throws UpdateException to reject the message, to hold it back, or to get it again later
     * @throws Exception anything else becomes {@code user.update.internalError}, and the message a dead letter
     */
    void update(Delivery delivery) throws Exception;
}

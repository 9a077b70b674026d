/**
 * Crewel's delivery contract for CometD's Java client: extensions of a {@link org.cometd.client.BayeuxClient}, which keeps its
 * own transports, handshakes and reconnections.
 *
 * <table>
 * <caption>What each class adds</caption>
 * <tr><th>class</th><th>what it adds</th></tr>
 * <tr><td>{@link io.crewel.client.SessionExtension}</td><td>a named session that the next process takes over</td></tr>
 * <tr><td>{@link io.crewel.client.UpdateExtension}</td><td>the delivery status of each message</td></tr>
 * <tr><td>{@link io.crewel.client.Publisher}</td><td>publishes with keys, which are repeated without harm</td></tr>
 * <tr><td>{@link io.crewel.client.Outbox}</td><td>publishes that wait for the server in a file</td></tr>
 * <tr><td>{@link io.crewel.client.RequestExtension}</td><td>requests and replies</td></tr>
 * <tr><td>{@link io.crewel.client.PresenceExtension}</td><td>who is present on a channel</td></tr>
 * </table>
 *
 * <pre>{@code
 * BayeuxClient client = new BayeuxClient(url, new JettyHttpClientTransport(null, http));
 * SessionExtension.addTo(client, new SessionOptions().name("kitchen/1"));
 * UpdateExtension update = UpdateExtension.addTo(client, new UpdateOptions().maxOpen(1));
 * client.handshake(reply -> {
 *     if (reply.isSuccessful()) {
 *         update.subscribe("/orders", delivery -> bake(delivery.data()));
 *     }
 * });
 * }</pre>
 */
package io.crewel.client;

"""Messages for one of several receivers: addressed to a session or a subject, or shared by a consumer group.

Uses the store, the queues of sessions and the dead letters. Knows nothing of topics and subscriptions: groups reach them
through hooks.
"""

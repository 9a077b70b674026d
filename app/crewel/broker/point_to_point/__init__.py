"""Messages that one of several gets: addressed to a session or a subject, or shared by a consumer group.

Uses the store, the queues of sessions and the dead letters. It knows nothing of topics and subscriptions: groups reach them
through hooks.
"""

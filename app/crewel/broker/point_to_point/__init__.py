"""Messages that one of several gets: addressed to a session or a subject, or shared by a consumer group.

Uses the store, the outbox and the dead letters. It knows nothing of topics and subscriptions: what groups have to say to them
goes through their hooks.
"""

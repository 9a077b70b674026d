"""PURE. The delivery engine: which messages of the log are pending for which session, their order and batches, and the effects
of an acknowledgement, a rejection or silence.

`log_consumer` reads the log for all sessions, `durable_session` is one of them, `dispatcher` decides on retries and holdback.
Uses `qos`, `bayeux` and `errors`. `now` is an argument and decisions are plain values: no clock, socket or store.
"""

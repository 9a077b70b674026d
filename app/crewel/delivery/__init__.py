"""PURE. The delivery engine: which messages of the log are pending for which session, in which order and batches they go out,
and what follows from an acknowledgement, a rejection or silence.

`log_consumer` reads the log for all sessions, `durable_session` is one of them, `dispatcher` decides on retries and holdback.
Uses `qos`, `bayeux` and `errors`. `now` comes in as an argument, decisions go out as plain values: no clock, socket or store.
"""

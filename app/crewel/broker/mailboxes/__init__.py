"""The pending messages of one session and their delivery: its queue, its held connect, statuses, expiry and time-outs.

Only this package and `session` assign the slots of a session. Everything else uses their methods.
"""

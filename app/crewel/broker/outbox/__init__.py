"""What waits for one session and how it leaves: its queue, the connect it holds, statuses, expiry and time-outs.

The slots of a session are assigned here and in `session` only. Everything else uses their methods.
"""

"""The messages that wait for one session, and how they leave: its queue, the connect it holds, statuses, expiry and time-outs.

The slots of a session are assigned here and in `session` only. Everything else uses their methods.
"""

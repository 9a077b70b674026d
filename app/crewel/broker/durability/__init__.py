"""The state that outlives this process: the log, the stored sessions and their pending messages.

`durability` knows all parts except those that answer clients.
"""

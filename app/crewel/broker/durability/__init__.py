"""What outlives this process: the log, the sessions that the store has, and the messages that wait for them.

`access` is what every package of the broker shares of the store, and the lowest module of all; `durability` knows all parts
but those that answer clients.
"""

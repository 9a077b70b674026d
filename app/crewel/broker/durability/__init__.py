"""What outlives this process: the log, the sessions that the store has, and the messages that wait for them.

`access` is what every room shares of the store, and the lowest of all; `durability` knows all rooms but those that answer
clients.
"""

"""The state that outlives this process: the log, the stored sessions and their pending messages.

`access` is the part of the store that all packages of the broker share, and the lowest module of all; `durability` knows all
parts except those that answer clients.
"""

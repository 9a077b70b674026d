"""The store, Redis or Valkey: everything that survives the server, and the only place that knows its keys.

`keys` names every key; `scripts` is one atomic step, a Lua file with its arguments; `store` runs steps on one writing
connection in order; `embedded` starts a server of our own. Each other module is one subject: what is asked for, and what
comes back.
"""

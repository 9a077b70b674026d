"""The store, Redis or Valkey: everything that survives the server, and the only place that knows its keys.

`keys` names every key; `steps` is the shape of one atomic step; `store` runs steps on one writing connection, in order;
`embedded` starts a server of our own; `scripts` holds one Lua file a step. The other modules are one an aggregate: they
say what is asked for, and read what comes back.
"""

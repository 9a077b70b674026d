"""The store, Redis or Valkey: everything that survives the server, and the only place that knows its keys.

`keys` names every key; `steps` has the `Step`, one atomic step: a Lua file of the folder `scripts` with its arguments; `store`
runs steps on one writing connection in order; `embedded` starts a server of our own. Each other module is one subject: what
is asked for, and what comes back.
"""

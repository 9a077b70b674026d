"""The store, Redis or Valkey: all state that survives the server, and the only package that knows its keys.

`keys` names every key. `script_step` has the `Step`, one atomic step: a Lua file of the folder `scripts` with its arguments.
`store` runs steps in order on one writing connection. `embedded` starts our own store. Each other module has one subject: its
requests and its replies.
"""

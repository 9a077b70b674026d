"""The sessions of one server and the messages between them, on one event loop; `Broker` assembles them.

Uses the store, the policies and the pure packages (`delivery`, `topics`, `qos`, `limits`, `bayeux`). Knows no transport, no
command of operators and no extension: they call the broker, or it calls hooks. Nothing here waits for a peer.
"""

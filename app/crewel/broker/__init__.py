"""The sessions of one server and the messages between them, on one event loop; `parts` puts all of it together.

Uses the store, the policies and the pure packages (`delivery`, `topics`, `qos`, `limits`, `bayeux`). Knows no transport, no
command of operators and no extension: those call it, or it calls hooks. Nothing here waits for a peer.
"""

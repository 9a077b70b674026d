"""PURE. The options of a publish, a subscribe, a login and a delivery, as `ext` has them on the wire: which there are, their
defaults and bounds. Server, client and command line read them here. May use `bayeux` and `errors`, and knows no session,
queue or store."""

"""PURE. The options of a publish, a subscribe, a login and a delivery, as `ext` has them on the wire, with their defaults and
bounds. Server, client and command line use these definitions. May use `bayeux` and `errors`, and knows no session, queue or
store."""

"""Messages that are addressed: to a session, to a subject, or to one member of a group."""

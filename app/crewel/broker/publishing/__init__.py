"""The path of a publish, from the request of a client, a back end or the server itself to the log, and into mailboxes."""

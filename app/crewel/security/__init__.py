"""Permissions: the policy of the whole server, authorisers of channels, tokens and the keys that verify them.

May use `settings`, `bayeux` and the names of sessions, and knows neither transports nor the store."""

"""Permissions: the policy that decides for the whole server, authorisers that channels carry, and tokens. It reads settings and
channels, and knows neither transports nor the store."""

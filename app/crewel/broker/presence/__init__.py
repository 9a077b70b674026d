"""Presence of channels: which members have entered them, and what of that changes."""

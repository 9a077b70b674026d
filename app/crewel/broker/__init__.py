"""Owns the sessions and moves messages between them. Everything runs on one event loop, and nothing here waits for a
peer: what has to wait is a generator that says so (`steps`), or a stored continuation (`sessions.Held`)."""

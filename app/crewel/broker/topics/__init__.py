"""The topics of a running server: what refers to them, what becomes of them, and who is told."""

"""Sessions as a server has them: handshakes and logins, names that are claimed, restored sessions, and their end."""

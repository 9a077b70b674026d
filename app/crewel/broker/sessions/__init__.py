"""Sessions as a server has them: handshakes and logins, names that are claimed, presence, restored sessions, and their end."""

"""Sessions as a server has them: handshakes and logins, names that are claimed, notices of logins, restored sessions, and their end."""

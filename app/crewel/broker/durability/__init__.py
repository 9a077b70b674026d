"""What outlives this process: the log, the sessions that the store has, and what waits for them."""

"""What clients report of their messages, and what is done about it."""

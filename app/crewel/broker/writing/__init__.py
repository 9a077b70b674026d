"""What a server writes to the store: the queue of it, whether the store may be asked, and how much of it each account has."""

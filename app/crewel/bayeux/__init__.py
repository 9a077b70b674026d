"""What the protocol says. Pure: no clock, no sockets, no sessions; facts come in as arguments, answers go out as values."""

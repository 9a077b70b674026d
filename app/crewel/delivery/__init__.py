"""How entries reach one session, or do not. Pure: `now` comes in as an argument, decisions go out as plain values."""

"""How bytes travel: each transport turns requests or frames into elements for the broker, and ready parts into bytes."""

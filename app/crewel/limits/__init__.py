"""PURE. How much one address or one subject may ask of the server: token buckets, and counts of what it has."""

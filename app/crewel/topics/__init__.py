"""PURE. What a topic is: its life, what it is configured to be, and how long its messages live."""

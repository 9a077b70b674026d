"""Dead letters: reading them from the store, showing new ones, and redriving or discarding them for an operator.

Uses the store, the queues of sessions and the queues of receivers. Other parts create dead letters:
docs/explanation/architecture.md lists them.
"""

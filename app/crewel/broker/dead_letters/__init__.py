"""Dead letters: read from the store, shown as they are made, sent again or discarded by an operator.

Uses the store, the queues of sessions and the queues of receivers. Other parts make dead letters:
docs/explanation/architecture.md lists them.
"""

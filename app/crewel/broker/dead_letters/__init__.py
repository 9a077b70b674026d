"""Dead letters: read from the store, shown as they are made, sent again or thrown away by an operator.

Uses the store, the queues of sessions and the queues of receivers; who makes a dead letter is decided elsewhere.
"""

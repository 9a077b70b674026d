"""The topics of a running server: their references, their changes of state, and how they are erased.

Uses the store, the shared queues and the channels. The rules are in `crewel.topics`, which is pure.
"""

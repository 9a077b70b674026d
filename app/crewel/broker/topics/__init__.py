"""The topics of a running server: what refers to them, what becomes of them, and how they are erased.

Uses the store, the shared queues and the channels. The rules are in `crewel.topics`, which is pure.
"""

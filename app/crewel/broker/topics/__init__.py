"""The topics of a running server: what refers to them, what happens to them, and how they are erased.

Uses the store, the shared queues and the channels. The rules are in `crewel.topics`, which is pure.
"""

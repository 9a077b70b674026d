"""Several servers on one store: which there are, and how a request reaches the one that has its session (decision 0260).

A server that shares its store with no other uses nothing of it.
"""

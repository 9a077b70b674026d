"""Several servers on one store: which nodes exist, and how a request reaches the node that has its session (decision 0260).

A server that does not share its store uses none of it.
"""

"""Several processes that serve one address on one machine: `crewel serve --workers N` (decision 0266).

The parent owns the listening sockets and the embedded store, and stays out of the data path. A worker is a node like any other
(decision 0260) with an inherited listener.
"""

"""The jobs, one module for each command of `crewel pipeline`: they combine the Spark session, the paths and the store.

`transformations` has the computations; the jobs read, write, and repeat them after a crash.
"""

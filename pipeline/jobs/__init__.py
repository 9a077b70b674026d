"""The jobs, one module for each command of `crewel pipeline`: they bring the Spark session, the paths and the store together.

What a job computes is in `transformations`; here it is read, written and repeated after a crash.
"""

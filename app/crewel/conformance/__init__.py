"""A conformance test for Bayeux servers: `crewel conformance URL`, with checks for the statements of the specification.

It takes the protocol from the specification alone and imports nothing else of Crewel, so that it judges every server alike.
"""

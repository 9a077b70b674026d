"""A conformance test for Bayeux servers: `crewel conformance URL`, one check for each statement of the specification.

It knows the protocol from the specification alone and imports nothing else of Crewel, so that it judges every server alike.
"""

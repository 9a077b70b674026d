"""Crewel: a Bayeux server for Python that does not lose messages."""

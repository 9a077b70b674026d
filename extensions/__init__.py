"""The extensions that Crewel brings: each a server half, some with a browser half beside it."""

"""The extensions that Crewel brings: each a server half, some with a browser half beside it. README.md lists them.

They see messages through the hooks of `crewel.extension` and sessions through ports of the broker, and assign no slot of a
session. `BUILT_IN` in `crewel.server` has their names.
"""

"""The built-in extensions: each has a server half, and some a browser half beside it. README.md lists them.

They see messages through the hooks of `crewel.extension` and sessions through ports of the broker, and assign no slot of a
session. `BUILT_IN` in `crewel.server` has their names.
"""

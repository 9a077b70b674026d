"""The command `crewel`: one file a command group, put together in `main`."""

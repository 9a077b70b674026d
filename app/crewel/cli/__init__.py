"""The command `crewel`: one file for each command or group of commands, put together in `main`.

A command may import everything, but inside its function: each start of the server would wait for it.
"""

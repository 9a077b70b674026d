"""The command `crewel`: one file for each command or group of commands, combined in `main`.

A command may import everything, but only inside its function: otherwise each start of the server would wait for the import.
"""

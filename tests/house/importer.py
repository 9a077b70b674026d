"""Imports modules of the product in processes that have imported no other of them: `python importer.py`.

It is asked for modules by lines, those of a line in one process, and answers each with a line of JSON: "imported", or the
traceback. Each process is forked and not started, because what a start takes is the import of other people's modules, which
are imported here once.
"""

import gc
import json
import os
import sys
import traceback
from importlib import import_module

OF_OTHERS = ("aiohttp.web", "jwt", "prometheus_client", "pydantic_settings", "redis.asyncio", "typer", "uvloop")
IMPORTED = "imported"


def attempt(names: list[str]) -> str:
    """Return how the imports go in a process of their own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for name in names:
                import_module(name)
            told = IMPORTED
        except BaseException:  # noqa: BLE001 - whatever it is, it is told
            told = traceback.format_exc()
        os.write(writer, told.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        told = answer.read().decode()
    os.waitpid(child, 0)
    return told


if __name__ == "__main__":
    for other in OF_OTHERS:
        import_module(other)
    gc.disable()  # a collection in a child would copy every page of this process
    for line in sys.stdin:
        print(json.dumps(attempt(line.split())), flush=True)

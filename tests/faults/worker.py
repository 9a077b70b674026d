"""A worker on the Python client: `python -m tests.faults.worker URL NAME DIRECTORY`.

It notes each order in a book, a database of the directory, in one transaction with the message's id; then it prints the id.
tests/interop/drivers/worker.mjs does the same with the official client, and examples/java-worker with CometD's Java client.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from crewel.client import Client, Inbox


async def main(url: str, name: str, directory: Path) -> None:
    """Work until the process is killed."""
    book = sqlite3.connect(directory / "book.db")
    book.execute("CREATE TABLE IF NOT EXISTS done (id TEXT, n INTEGER)")
    inbox = Inbox(name)
    inbox.create(book)
    async with Client(url) as client:
        async for order in client.consume("/orders/new", name=name, resume_file=directory / "resume"):
            async with order:
                with book:
                    if inbox.is_first(book, order):
                        book.execute("INSERT INTO done VALUES (?, ?)", (order.id, order.data["n"]))
                os.write(1, f"{order.id}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))

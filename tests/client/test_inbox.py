"""Handling a message once, with SQLite and with PostgreSQL."""

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from crewel.client import Inbox, Message
from crewel.client.consumer import Delivery

LIMIT_S = 60.0


def message(message_id: str | None) -> Message:
    """A message with this id."""
    return Message("/a", 1, {} if message_id is None else {"id": message_id})


def test_a_message_is_first_once_for_each_receiver(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "app.db")
    billing, mail = Inbox("billing"), Inbox("mail")
    billing.create(database)
    mail.create(database)
    with database:
        assert billing.is_first(database, message("1"))
    with database:
        assert [inbox.is_first(database, message("1")) for inbox in (billing, mail)] == [False, True]
        assert billing.is_first(database, message("2"), key="order-7")
        assert not billing.is_first(database, message("3"), key="order-7")
    database.close()


def test_a_message_whose_transaction_failed_is_first_again(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "app.db")
    inbox = Inbox("billing")
    inbox.create(database)
    assert inbox.is_first(database, message("1"))
    database.rollback()
    assert inbox.is_first(database, message("1"))
    database.close()


@pytest.mark.parametrize("decide", ["retry", "hold", "reject"])
def test_a_message_is_not_sent_again_after_its_id_is_committed(tmp_path: Path, decide: str) -> None:
    database = sqlite3.connect(tmp_path / "app.db")
    inbox = Inbox("billing")
    inbox.create(database)
    delivery = Delivery("/a", 1, {"id": "1"})
    again = {"retry": delivery.retry, "hold": delivery.hold, "reject": lambda: delivery.reject("communication.busy")}
    again[decide]()  # before it is recorded
    with suppress(RuntimeError), database:
        assert inbox.is_first(database, delivery)
        with pytest.raises(RuntimeError, match="the inbox has recorded message 1"):
            again[decide]()
        raise RuntimeError
    assert inbox.is_first(database, delivery), "the transaction was not rolled back"
    delivery.dead_letter("an operator sends it again with another id")
    database.rollback()
    again[decide]()
    database.close()


def test_old_ids_are_forgotten(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "app.db")
    inbox = Inbox("billing")
    inbox.create(database)
    inbox.is_first(database, message("1"))
    assert inbox.forget(database, timedelta(days=1)) == 0
    assert inbox.forget(database, timedelta(days=-1)) == 1
    assert inbox.is_first(database, message("1"))
    database.close()


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="receiver is a name"):
        Inbox("")
    with pytest.raises(ValueError, match="table is a name of letters, digits and _, not 'a; DROP'"):
        Inbox("a", table="a; DROP")
    with pytest.raises(ValueError, match=r"marker is \? or %s"):
        Inbox("a", marker=":1")
    with closing(sqlite3.connect(":memory:")) as database, pytest.raises(ValueError, match="has no id"):
        Inbox("a").is_first(database, message(None))


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """How to connect to a PostgreSQL of its own, on a Unix socket."""
    # Debian keeps the programs out of the path.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    path = os.pathsep.join([*map(str, found), os.environ.get("PATH", "")])
    initdb, server = (shutil.which(name, path=path) for name in ("initdb", "postgres"))
    assert initdb, "PostgreSQL is missing: apt-get install postgresql"
    assert server
    directory = Path(tempfile.mkdtemp(prefix="crewel-postgres-"))
    user = None
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        user = pwd.getpwnam("nobody").pw_uid
        os.chown(directory, user, -1)
    data = str(directory / "data")
    subprocess.run(
        [os.path.realpath(initdb), "-D", data, "-U", "crewel", "-A", "trust", "--no-sync"],
        user=user, cwd=directory, check=True, capture_output=True, timeout=LIMIT_S,
    )  # fmt: skip
    command = [os.path.realpath(server), "-D", data, "-k", str(directory), "-c", "listen_addresses=", "-c", "fsync=off"]
    process = subprocess.Popen(command, user=user, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if b"ready to accept connections" in line:
            break
    else:
        raise AssertionError(b"".join(lines).decode())
    yield f"host={directory} user=crewel dbname=postgres"
    process.terminate()
    process.wait(LIMIT_S)
    process.stderr.close()
    shutil.rmtree(directory)


@pytest.mark.server
def test_postgresql_notes_a_message_in_the_transaction_of_its_effect(postgres: str) -> None:
    inbox = Inbox("billing", marker="%s", table="noted")
    with psycopg.connect(postgres) as database:
        inbox.create(database)
    with psycopg.connect(postgres) as database:
        assert inbox.is_first(database, message("1"))
        database.rollback()
        delivery = Delivery("/a", 1, {"id": "1"})
        assert inbox.is_first(database, delivery)
        with pytest.raises(RuntimeError, match="the inbox has recorded message 1"):
            delivery.retry()
        database.commit()
        assert not inbox.is_first(database, message("1"))
        assert inbox.forget(database, timedelta(days=-1)) == 1


@pytest.mark.server
async def test_postgresql_does_so_for_coroutines(postgres: str) -> None:
    inbox = Inbox("billing", marker="%s", table="noted_by_coroutines")
    async with await psycopg.AsyncConnection.connect(postgres) as database:
        await inbox.create_async(database)
        assert await inbox.is_first_async(database, message("1"))
        assert not await inbox.is_first_async(database, message("1"))
        assert await inbox.forget_async(database, timedelta(days=-1)) == 1

"""The Lua files as such."""

import re
from pathlib import Path

import pytest
import redis

import crewel.pipeline
from crewel.pipeline.connection import Address
from crewel.pipeline.steps import run
from tests.store_process import shared_store

FILES = sorted((Path(crewel.pipeline.__file__).parent / "scripts").glob("*.lua"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_script_says_what_it_does_and_takes(file: Path) -> None:
    first, *lines = file.read_text().splitlines()
    assert first.startswith("#!lua")
    head = "\n".join(lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))])
    assert re.match(r"-- [A-Z][^.]*\.", head)
    assert re.search(r"^-- Returns ", head, re.MULTILINE)
    for name in re.findall(r"\b((?:KEYS|ARGV)\[\d\])", "\n".join(lines)):
        assert f"-- {name}" in head


def test_the_store_learns_a_script_again_that_it_has_forgotten(address: Address) -> None:
    with address.client() as client:
        for _ in range(2):
            client.script_flush()
            assert run(client, "look", [address.keys.facts]) == [[b"0-0", 0, 0, b"0-0", b"0-0"]]


def test_a_script_needs_no_right_beside_those_of_the_docs(address: Address) -> None:
    """They are `EVALSHA` and `SCRIPT LOAD`, and not `EVAL`."""
    with address.client() as client:
        client.execute_command("ACL", "SETUSER", "few", "on", ">few", "~*", "+@all", "-eval")
        try:
            with redis.Redis(unix_socket_path=str(shared_store().socket), username="few", password="few") as few:
                client.script_flush()
                assert run(few, "look", [address.keys.facts]) == [[b"0-0", 0, 0, b"0-0", b"0-0"]]
        finally:
            client.execute_command("ACL", "DELUSER", "few")

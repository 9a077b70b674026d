"""The Lua files as such."""

import re
from pathlib import Path

import pytest

import crewel.pipeline
from crewel.pipeline.connection import Address
from crewel.pipeline.steps import run

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

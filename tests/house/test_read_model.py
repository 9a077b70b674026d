"""The administration reaches into the broker in one module, and elsewhere no more than it does already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import modules, shown, tree

ADMIN, ONE = "app/crewel/admin/", "app/crewel/admin/server_view.py"
LEFT = 13


def reaches() -> Iterator[str]:
    """The places that name a part of a part of the broker: `broker.addressing.names`."""
    for file in modules():
        if shown(file).startswith(ADMIN) and shown(file) != ONE:
            for node in ast.walk(tree(file)):
                match node:
                    case ast.Attribute(
                        value=ast.Attribute(value=ast.Name("broker") | ast.Attribute(attr="broker" | "_broker"))
                    ):
                        yield f"{shown(file)}:{node.lineno}"


def test_the_administration_asks_one_module_about_the_broker() -> None:
    found = sorted(reaches())
    assert len(found) <= LEFT, "\n".join(found)
    assert len(found) >= LEFT, f"LEFT can be {len(found)} now"

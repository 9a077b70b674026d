"""What a mailbox shows, and where the product looks into one from outside: at a field that is read often, or at a part."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.source import ROOT, modules, shown, tree

MAILBOXES: Final = ROOT / "app" / "crewel" / "broker" / "mailboxes"
ROOMS: Final = frozenset(("arrivals", "ends", "full_queue", "mailbox", "mailbox_view", "notices"))
"""The modules that a mailbox consists of: they read its parts."""
READ: Final = frozenset({"news", "tells"})
"""What is read for each delivery, and written by the mailbox alone."""


class Access(NamedTuple):
    """One look into a mailbox."""

    place: str
    member: str

    def __str__(self) -> str:
        return f"{self.place} {self.member}"


@cache
def members() -> tuple[set[str], set[str]]:
    """Return the names of the fields of a mailbox, and of its methods."""
    [mailbox] = [node for node in tree(MAILBOXES / "mailbox.py").body if isinstance(node, ast.ClassDef)]
    fields = {
        each.target.id for each in mailbox.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    methods = {
        each.name for each in mailbox.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("__")
    }
    return fields, methods


def accesses() -> Iterator[Access]:
    """Yield each look from outside."""
    for file in outside():
        yield from looks(tree(file), shown(file))


def outside() -> Iterator[Path]:
    """Yield the modules that are no room of a mailbox."""
    yield from (file for file in modules() if not (file.parent == MAILBOXES and file.stem in ROOMS))


def looks(module: ast.Module, name: str) -> Iterator[Access]:
    """Yield those of one module. It may call a mailbox by no other name than `mailbox`: see `aliases`."""
    fields, methods = members()
    parts = fields - READ | {each for each in methods if each.startswith("_")}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in parts and _is_mailbox(node.value):
            yield Access(f"{name}:{node.lineno}", node.attr)


def aliases(module: ast.Module) -> Iterator[str]:
    """Yield the other names by which a module calls a mailbox."""
    for node in ast.walk(module):
        if isinstance(node, ast.arg) and node.arg != "mailbox" and _is_type(node.annotation):
            yield node.arg
        for target, value in _assignments(node):
            if _is_mailbox(value) and not _is_mailbox(target):
                yield ast.unparse(target)


def _is_type(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).strip("'\"") == "Mailbox"


def _is_mailbox(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in {"mailbox", "_mailbox"}


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment, each with its value."""
    if isinstance(node, ast.NamedExpr):
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value

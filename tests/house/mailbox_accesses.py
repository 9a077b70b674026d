"""Where the product looks into a mailbox from outside: at a field, or by a method that is none of its verbs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.source import ROOT, modules, shown, tree

VERBS: Final = frozenset(
    (
        "offer",
        "take",
        "told",
        "close_batch",
        "expected",
        "confirm",
        "acknowledge",
        "report",
        "overdue",
        "conclude",
        "tick",
        "expire",
        "hold",
        "resume",
        "configure",
        "keep_in",
        "remember",
        "renew",
        "go_away",
        "come_back",
        "leave",
        "wanted",
        "load",
        "end",
        "give_back",
        "view",
        "room",
        "messages",
    )
)
"""What a mailbox is asked for."""
READ: Final = frozenset({"news", "tells"})
"""What is read for each delivery, and written by the mailbox alone."""

_MAILBOX: Final = "Mailbox"
_BESIDE: Final = frozenset({"MailboxView", "FullQueue", "Ends"})
"""The view reads for all others, and the others decide for the mailbox."""
_ROOMS: Final = {"Batches": "batches", "Dispatcher": "dispatcher", "OpenLimit": "limit"}
"""What a mailbox consists of, by the class, and as which field."""
_INSIDE: Final = ROOT / "app" / "crewel" / "delivery"


class Access(NamedTuple):
    """One look into a mailbox."""

    place: str
    member: str

    def __str__(self) -> str:
        return f"{self.place} {self.member}"


def accesses() -> Iterator[Access]:
    """Yield each look from outside. A chain, such as `mailbox.dispatcher.rules`, is one."""
    for file in modules():
        if not _is_inside(file):
            yield from looks(tree(file), shown(file))


def looks(module: ast.Module, name: str) -> Iterator[Access]:
    """Yield those of one module."""
    yield from _Looks(name).of(module, {})


def _is_inside(file: Path) -> bool:
    return _INSIDE in file.parents or any(
        isinstance(node, ast.ClassDef) and node.name in {_MAILBOX, *_BESIDE} for node in tree(file).body
    )


class _Looks:
    """Walks through one module, with the names that stand for a mailbox ("") or for one of its rooms."""

    def __init__(self, name: str) -> None:
        self._name = name

    def of(self, node: ast.AST, known: dict[str, str]) -> Iterator[Access]:
        """Yield what lies below the node."""
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            known = _known_in(node, known)
        elif isinstance(node, ast.Attribute):
            owner = _meaning(node.value, known)
            if owner is not None:
                if owner or node.attr not in VERBS | READ:
                    yield Access(f"{self._name}:{node.lineno}", f"{owner}.{node.attr}".lstrip("."))
                return
            if isinstance(node.value, ast.Attribute) and (room := _room(node.value, known)):
                yield Access(f"{self._name}:{node.lineno}", f"{room}.{node.attr}")
                return
        for child in ast.iter_child_nodes(node):
            yield from self.of(child, known)


def _meaning(node: ast.expr, known: dict[str, str]) -> str | None:
    """What the expression stands for: a mailbox (""), one of its rooms by a name of its own, or nothing of that."""
    if isinstance(node, ast.Attribute) and node.attr == "mailbox":
        return ""
    return known.get(ast.unparse(node)) if isinstance(node, ast.Name | ast.Attribute) else None


def _room(node: ast.expr, known: dict[str, str]) -> str | None:
    """The room that the expression takes out of a mailbox."""
    if isinstance(node, ast.Attribute) and node.attr in _ROOMS.values() and _meaning(node.value, known) == "":
        return node.attr
    return None


def _known_in(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, known: dict[str, str]) -> dict[str, str]:
    """The names that stand for a mailbox or a room, those that hold in a class or a function included."""
    known = dict(known)
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            known |= _by_type(each.arg, each.annotation)
        elif isinstance(each, ast.AnnAssign):
            known |= _by_type(ast.unparse(each.target), each.annotation)
    pairs = [pair for each in ast.walk(node) for pair in _assignments(each)]
    for _ in range(2):  # an alias may be one of an alias
        for target, value in pairs:
            meaning = _meaning(value, known)
            found = _room(value, known) if meaning is None else meaning
            if found is not None:
                known[ast.unparse(target)] = found
    return known


def _by_type(name: str, annotation: ast.expr | None) -> dict[str, str]:
    of_type = "" if annotation is None else ast.unparse(annotation).strip("'\"")
    if of_type == _MAILBOX:
        return {name: ""}
    return {name: _ROOMS[of_type]} if of_type in _ROOMS else {}


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

"""Who may change what many share: the slots of a session and of an entry are assigned in their own package only."""

import ast
from collections.abc import Iterator
from pathlib import Path

from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.session import Session
from crewel.delivery.entry import Entry
from tests.house.source import ROOT, modules, shown, tree

SLOTS = {*Session.__slots__, *Mailbox.__slots__}
BROKER = "app/crewel/broker"
ROOM = (f"{BROKER}/session.py", f"{BROKER}/exchange.py", f"{BROKER}/mailboxes/")
APART = ("app/crewel/client/", "app/crewel/delivery/", "app/crewel/storage/", "pipeline/")  # know no session
OTHERS = {
    "app/crewel/transports/heads.py": {"browser"},  # of the head of a request
    f"{BROKER}/topics/topic_table.py": {"asked"},  # of a topic
    f"{BROKER}/addressing/channels.py": {"subscriptions"},  # of an account
    f"{BROKER}/admission/limiter.py": {"subscriptions"},
    f"{BROKER}/sessions/logins.py": {"browser"},  # of the peer of an exchange
}
"""Slots' names that are names of something else there."""


LATER = {
    f"{BROKER}/durability/subscriber_cache.py": {"fan_out_record"},
    f"{BROKER}/mailboxes/backlog.py": {"weight"},
}
"""The slots of an entry that are set once it is on its way."""


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement assigns or deletes, tuples taken apart."""
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            waiting = list(found)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            waiting = [target]
        case _:
            waiting = []
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        else:
            yield target.value if isinstance(target, ast.Subscript) else target


def assigned(file: Path) -> Iterator[str]:
    """Yield the places where a module assigns a slot of a session that is not its own."""
    for node in ast.walk(tree(file)):
        for target in targets(node):
            if not isinstance(target, ast.Attribute) or target.attr not in SLOTS:
                continue
            if ast.unparse(target.value) != "self" and target.attr not in OTHERS.get(shown(file), ()):
                yield f"{shown(file)}:{node.lineno} {ast.unparse(target)}"  # type: ignore[attr-defined]


def test_no_slot_of_a_session_is_assigned_outside_its_room() -> None:
    outside = (file for file in modules() if not shown(file).startswith((*ROOM, *APART)))
    assert not [place for file in outside for place in assigned(file)]


def test_the_room_exists() -> None:
    assert all((ROOT / name).exists() for name in ROOM)


def test_an_entry_is_not_changed_once_it_is_made() -> None:
    changed = [
        f"{shown(file)}:{node.lineno} {ast.unparse(target)}"  # type: ignore[attr-defined]
        for file in modules()
        if shown(file) != "app/crewel/delivery/entry.py"
        for node in ast.walk(tree(file))
        for target in targets(node)
        if isinstance(target, ast.Attribute)
        and ast.unparse(target.value) == "entry"
        and target.attr in Entry.__slots__
        and target.attr not in LATER.get(shown(file), ())
    ]
    assert not changed

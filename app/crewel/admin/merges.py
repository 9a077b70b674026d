"""How the answers of several nodes to one request become one: the column `merge` of a resource's row.

A row without one is answered by the node that is asked. Pure: `other_nodes` asks the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

Row = dict[str, Any]
AsOne = Callable[[list[Row]], Row]
"""Makes one of what several nodes say of one thing."""


class Pages(NamedTuple):
    """A list: a page of it is made of the pages of all nodes that answer."""

    key: str
    """The field of the answer that has the rows."""
    by: str = "name"
    """The field of a row that says which thing it is about, and by which rows of equal rank are sorted."""
    as_one: AsOne | None = None
    """Makes one row of those about one thing; None: each thing is at one node."""
    joined: tuple[str, ...] = ()
    """Filters of fields that follow from what all nodes say: the rows that are made are chosen by them."""
    sums: tuple[str, ...] = ()
    """Fields of the answer that are added up."""
    has_shared: bool = False
    """Whether there are also rows of subjects and groups, which all nodes have a part of."""


class Parts(NamedTuple):
    """Each node knows a part of it; those that answer are put together."""

    as_one: Callable[[list[Row], Mapping[str, Any]], Row]
    """Makes one of the parts, with the fields of the request."""
    may_lack: bool = False
    """Whether a node may know nothing of it, which it says by refusing."""
    patience_s: float | None = None
    """How long the other nodes are waited for; None: as long as for any request."""


class AtAll(NamedTuple):
    """All nodes that know it do it. An error of one of these is the answer, for the operator has to know."""

    as_one: AsOne


class At(Enum):
    """Where else it is answered."""

    OWNER = "the node that has the session"
    HANDLER = "where its handler asks for it"


Merge = Pages | Parts | AtAll | At


def merged(views: Sequence[Row], first: Row, **makers: Callable[[list[Any]], Any]) -> Row:
    """What this view says, with these fields of it made from what all views say."""
    made = {
        name: make([view[name] for view in views if name in view]) for name, make in makers.items() if name in first
    }
    return {**first, **made}


def longest(lists: list[list[Any]]) -> list[Any]:
    """The first of the lists that have most items."""
    return max(lists, key=len)

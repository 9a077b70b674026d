"""The names in the paths of REST resources: how one is written into a path, and how it is read from a request.

Clients of HTTP resolve the segments `.` and `..` of a path, also if they are percent-encoded. A name with such a segment goes
into the query, and `_` stands in the path: `/topics/_?channel=/a/../b`. The command line reads this module too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from crewel.bayeux.channel import DOT_SEGMENTS
from crewel.errors import IllegalArgument

VARIABLE: Final = re.compile(r"{(\w+)}")
"""A variable of the path of a route."""
IN_QUERY: Final[Mapping[str, str]] = {
    "channel": "The channel's name, if a segment of it is . or ..: the path then has _ in its place.",
    "subject": "The subject, if it is . or ..: the path then has _ in its place.",
}
"""The variables whose value the query may have, with what the documentation says."""
_PLACEHOLDER: Final = "_"


class Resource(NamedTuple):
    """A path below `/admin/api`, encoded, and the part of its query that names what it is about."""

    path: str
    query: dict[str, str]


def resource(route: str, values: Mapping[str, str]) -> Resource:
    """The resource with these values for the variables of its path. The value of `channel` begins with a slash. Raises
    ValueError for an id that no request can name."""
    query: dict[str, str] = {}

    def written(found: re.Match[str]) -> str:
        name = found[1]
        value = values[name]
        segments = value.removeprefix("/").split("/") if name == "channel" else [value]
        if DOT_SEGMENTS.isdisjoint(segments) and all(segments):
            return "/".join(quote(segment, safe="") for segment in segments)
        if name not in IN_QUERY:
            raise ValueError(f"{value!r} is not an id")
        query[name] = value
        return _PLACEHOLDER

    return Resource(VARIABLE.sub(written, route), query)


def named(route: str, path: Mapping[str, str], query: dict[str, str]) -> dict[str, str]:
    """The values of the variables of the path of this route, decoded. Those that the query has are taken out of it. Raises
    IllegalArgument for a value that is in both."""
    values = dict(path)
    for name in VARIABLE.findall(route):
        if name in IN_QUERY and name in query:
            if values[name] != _PLACEHOLDER:
                raise IllegalArgument(name, f"must be left out of the query, unless the path has {_PLACEHOLDER} for it")
            value = query.pop(name)
            values[name] = value.removeprefix("/") if name == "channel" else value
    return values

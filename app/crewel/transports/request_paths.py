"""The paths of requests: those that a proxy in front may read as another path than this server are refused.

A rule of a proxy for `/metrics` does not see `/%6detrics`, and many clients and proxies resolve `/a/../b` before they pass it
on. No client encodes letters, digits, `-`, `.` and `_`, and none sends a segment `.` or `..`.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"%(?:2[de]|3[0-9]|[46][1-9a-f]|[57][0-9a]|5f)", re.ASCII | re.IGNORECASE)
_DOT_SEGMENT: Final = re.compile(r"(?:^|/|%2f)\.{1,2}(?:/|%2f|$)", re.IGNORECASE)


def why_refused(path: str) -> str:
    """Why a request for this path, as it was sent, is refused; empty if it is not."""
    found = _PLAIN.search(path)
    if found is not None:
        plain = chr(int(found[0][1:], 16))
        return f"the path has {found[0]}: write {plain}, which must not be percent-encoded"
    if _DOT_SEGMENT.search(path):
        return (
            "the path has a segment . or ..: name a channel or subject with such a segment in the query, as in"
            " /admin/api/topics/_?channel=/a/../b"
        )
    return ""


def is_plain(target: bytes) -> bool:
    """Whether the target of a request, as it was sent, has a path that `why_refused` need not look at."""
    path, _, _ = target.partition(b"?")
    return b"%" not in path and b"/." not in path

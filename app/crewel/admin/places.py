"""Cursors that do not tell their places: a page for an operator of some channels may end at something on other channels."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Final

from cryptography.fernet import Fernet, InvalidToken

from crewel.admin.request_fields import SEALED
from crewel.errors import IllegalArgument
from crewel.qos.fields import Check
from crewel.security.tokens import AdminToken

_PURPOSE: Final = "crewel places in lists"


def seal_place(admin: AdminToken, place: str) -> str:
    """A cursor that only servers with this admin token can read; empty if the place is."""
    return SEALED + _box(admin).encrypt(place.encode()).decode() if place else ""


def open_place(admin: AdminToken, cursor: str, check: Check) -> str:
    """The place of a cursor, sealed or not, if this check accepts it. Raises IllegalArgument."""
    if not cursor.startswith(SEALED):
        return cursor
    try:
        place: str = check(_box(admin).decrypt(cursor.removeprefix(SEALED).encode()).decode())
    except (InvalidToken, ValueError):
        raise IllegalArgument("after", "must be the `next` of the previous page") from None
    return place


def _box(admin: AdminToken) -> Fernet:
    return Fernet(urlsafe_b64encode(admin.key(_PURPOSE)))

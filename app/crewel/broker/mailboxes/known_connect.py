"""The connect that a client on a socket sends for each batch, as bytes: it is compared instead of parsed.

Such connects differ in their id and in the batch that they acknowledge, and in nothing else. Whatever differs in another place
(advice, another extension, another order of fields) is parsed as any message is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import orjson

from crewel.broker.exchange import CONNECT_CHANNEL

if TYPE_CHECKING:
    from crewel.broker.session import Session

_OTHER_ID, _OTHER_EXT = b"Other1", b'"other":1'


class KnownConnect:
    """The bytes of a session's last plain connect, less its id and what is in its `ext`."""

    __slots__ = ("_after", "_before", "_between", "_has_id_first", "session")

    def __init__(self, session: Session, pieces: tuple[bytes, bytes, bytes], *, has_id_first: bool) -> None:
        self.session = session
        self._before, self._between, self._after = pieces
        self._has_id_first = has_id_first

    @classmethod
    def of(cls, session: Session, payload: bytes, elements: list[Any]) -> Self | None:
        """What is known of further connects of this session after one with this payload, which is held now. None if that was
        another message, or the places of its id and `ext` are not certain."""
        held, part = session.held, session.plain
        if held is None or part is None or not isinstance(held.request, bytes) or len(elements) != 1:
            return None
        fields, ext = elements[0], part.expects(session)
        if fields.get("channel") != CONNECT_CHANNEL.name or fields.get("id") != held.request.decode():
            return None
        id_at, ext_at = payload.find(b'"id":"%b"' % held.request) + 6, payload.find(b'"ext":{%b}' % ext) + 7
        if id_at < 6 or ext_at < 7:
            return None
        places = sorted(((id_at, id_at + len(held.request)), (ext_at, ext_at + len(ext))))
        (first, first_end), (second, second_end) = places
        pieces = payload[:first], payload[first_end:second], payload[second_end:]
        known = cls(session, pieces, has_id_first=id_at < ext_at)
        # A field may come twice, and the last one counts: so both places are tried.
        other = b"".join(known._around(_OTHER_EXT, _OTHER_ID))
        expected = {**fields, "id": _OTHER_ID.decode(), "ext": orjson.loads(b"{%b}" % _OTHER_EXT)}
        return known if orjson.loads(other) in (expected, [expected]) else None

    def _around(self, ext: bytes, message_id: bytes) -> tuple[bytes, ...]:
        first, second = (message_id, ext) if self._has_id_first else (ext, message_id)
        return self._before, first, self._between, second, self._after

    def id_in(self, payload: bytes) -> bytes | None:
        """The id if the payload is this connect with another id, and its `ext` says that all has arrived; None for anything
        else."""
        part = self.session.plain
        ext = b"" if part is None else part.expects(self.session)
        if not ext:
            return None
        if self._has_id_first:
            front, back = self._before, self._between + ext + self._after
        else:
            front, back = self._before + ext + self._between, self._after
        message_id = payload[len(front) : -len(back)]
        return message_id if message_id.isalnum() and front + message_id + back == payload else None

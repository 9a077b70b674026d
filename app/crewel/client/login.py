"""Who the client is: `ext.session` of the handshake, and what the server answers to it.

The server's reply holds `resume`, a secret that only the last login of a session has. The client shows it with its next
handshake, so that a session that still lives is taken over, with its subscriptions and all that waits in it.
"""

from __future__ import annotations

from typing import Any

from crewel.bayeux.message import Fields
from crewel.client.extension import Extension
from crewel.client.message import HANDSHAKE, is_successful


class LoginExtension(Extension):
    """`ext.session`; empty if the application asks for nothing, for the server's answer tells more than that."""

    def __init__(self, asked: Fields) -> None:
        self._asked = asked
        self.kept: str | None = None
        """The secret that an earlier process has kept in a file, until a login has shown whether it is still good."""
        self.reply: Fields = {}
        """What the server answered to the last handshake that it granted."""

    @property
    def resume(self) -> str | None:
        """What takes this session over, from here or from elsewhere; it is a secret."""
        return _text(self.reply.get("resume")) or _text(self._asked.get("resume")) or self.kept

    def forget_kept(self) -> bool:
        """Show the secret of the earlier process no more; whether it was shown."""
        was_shown = self.kept is not None and self.kept == self.resume
        self.kept = None
        return was_shown

    @property
    def max_message_bytes(self) -> int | None:
        """The largest payload that the server takes, if it tells that."""
        told = self.reply.get("maxMessageBytes")
        return told if isinstance(told, int) and told > 0 else None

    def outgoing(self, message: Fields) -> Fields:
        """Adds the field to handshakes."""
        if message.get("channel") == HANDSHAKE:
            ext = message.get("ext")
            # Who says nothing of who it is wants no session back either.
            asks = bool(self._asked or self.kept)
            asked = self._asked | ({"resume": self.resume} if asks and self.resume else {})
            message["ext"] = {**(ext if isinstance(ext, dict) else {}), "session": asked}
        return message

    def incoming(self, message: Fields) -> Fields:
        """Keeps the answer."""
        ext = message.get("ext")
        if message.get("channel") == HANDSHAKE and is_successful(message) and isinstance(ext, dict):
            answer = ext.get("session")
            self.reply = answer if isinstance(answer, dict) else {}
            self.kept = None
        return message


def reporting(login: Fields, *, is_kept: bool = False) -> Fields:
    """What a client asks for that acknowledges and has not said whether it settles. A session that waits for its client may
    have more for it than it listens to; with `update` the client can leave that open, where an acknowledgement settles all.
    `is_kept`: the client keeps what takes its session over."""
    waits = is_kept or login.get("name") or login.get("resume")
    # The application reads at its leisure: a message that is not acknowledged yet has not failed.
    return {"update": True, "settle": "batch", "ackWait": -1, **login} if waits and "settle" not in login else login


def asked(session: Fields | None, **more: Any) -> Fields:
    """What `ext.session` asks for: these fields, and those that are neither None nor False."""
    return {
        **(session or {}),
        **{name: value for name, value in more.items() if value is not None and value is not False},
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

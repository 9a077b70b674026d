"""What a client is answered whose message or login is refused, or whose session is not its own any more.

A refused login says `403:<name>:<dotted code>` and that it is final; beside it, in `ext.session`, why. What only the store
stands in the way of may be tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from crewel.bayeux import advice, replies
from crewel.bayeux.advice import Advice
from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.session import Verdict
from crewel.errors import BayeuxCode, Flaw, Limited, Refused, StoreError, coded
from crewel.qos.names import parse_name
from crewel.security.policy import Refusal

log = logging.getLogger(__name__)

IDENTICAL: Final = "user.configuration.identicalClient"


def login_refusal(code: str, name: str, text: str) -> Refused:
    """The refusal of a login; `text` is for people."""
    return Refused(coded(code, name, 403), code, text)


class NameHeld(Refused):
    """The login's name belongs to a session that counts as alive. `retry_after_ms` is for how long, unless its client comes
    again; None if that cannot be said, for it is connected."""

    def __init__(self, name: str, retry_after_ms: int | None) -> None:
        later = "" if retry_after_ms is None else f", or try again after {retry_after_ms} ms, when it may be gone"
        text = f"another client has this session: take another number, or show its resume{later}"
        super().__init__(coded(IDENTICAL, name, 403), IDENTICAL, text)
        self.retry_after_ms = retry_after_ms


def refused(message: Message, error: Refused) -> Reply:
    """The reply to a handshake that is refused for good."""
    held_ms = error.retry_after_ms if isinstance(error, NameHeld) else None
    return _refused(message, error.error, advice.none(), error.code, error.message, held_ms)


def unavailable(message: Message, error: StoreError, name: str) -> Reply:
    """The reply to a handshake that the store could not take: the client may try again."""
    return _refused(message, coded(error.code, name, 503), advice.handshake(1000), error.code, str(error))


def limited(message: Message, error: Limited) -> Reply:
    """The reply to a handshake beyond a limit: the client may come back, and the reply says when."""
    return _refused(message, error.error, advice.handshake(error.wait_ms), error.code, error.message, error.wait_ms)


def _refused(
    message: Message, error: str, client_advice: Advice, code: str, text: str, retry_after_ms: int | None = None
) -> Reply:
    reply = replies.failed(message, error)
    reply["advice"] = client_advice
    if "session" in message.ext:
        reply["ext"] = {"session": {"errorCode": code, "message": text}}
        if retry_after_ms is not None:
            reply["ext"]["session"]["retryAfter"] = retry_after_ms
    return reply


def shown_token(message: Message) -> str | None:
    """The token that a handshake shows; None if it shows none."""
    if "ext" not in message.fields:
        return None
    asked = message.ext.get("session")
    token = asked.get("token") if isinstance(asked, dict) else None
    return token if isinstance(token, str) else None


def requested_name(asked: object) -> str:
    """The name as the error of a refused login repeats it."""
    name = asked.get("name") if isinstance(asked, dict) else None
    if not isinstance(name, str):
        return ""
    parsed = parse_name(name)
    return name if parsed is None else parsed.relative


def denied(message: Message, refusal: Refusal) -> Reply:
    """The reply to a handshake that the policy refuses."""
    if refusal.code:
        status = 403 if refusal.code.startswith("user.") else None
        error = coded(refusal.code, requested_name(message.ext.get("session")), status)
        reply = refused(message, Refused(error, refusal.code, refusal.message))
    else:
        reply = replies.failed(message, BayeuxCode.HANDSHAKE_DENIED)
    reply["advice"] = {"reconnect": refusal.reconnect}
    if refusal.ext is not None:
        reply["ext"] = refusal.ext
    return reply


def no_transport(message: Message, offered: Sequence[str]) -> Reply | None:
    """The reply to a handshake whose client names its transports, if the server offers none of them. A client that names none
    may have any: hand-written ones leave the field out."""
    asked = message.fields.get("supportedConnectionTypes")
    if type(asked) is not list or any(each in offered for each in asked):
        return None
    reply = replies.failed(message, BayeuxCode.NO_TRANSPORT)
    reply["supportedConnectionTypes"] = list(offered)
    reply["advice"] = advice.none()
    return reply


def superseded(name: str) -> Verdict:
    """What a connect is answered whose session another client has taken over."""
    return Verdict(coded(IDENTICAL, name, 402), advice.none())


def refusal(element: object, message: Message | None, failure: Exception) -> Reply:
    """The reply to a message that was refused, or that could not be handled."""
    if not isinstance(failure, Refused):
        log.error("a message could not be handled", exc_info=failure)
        failure = Refused(BayeuxCode.INTERNAL_ERROR)
    if message is None:
        return replies.refused(element, failure.error)
    reply = replies.failed(message, failure.error)
    asked = "subscribe" if message.channel.is_meta else "publish"
    if failure.code and asked in message.ext:
        reply["ext"] = {asked: {"errorCode": failure.code, "message": failure.message}}
        if isinstance(failure, Limited):
            reply["ext"][asked]["retryAfter"] = failure.wait_ms
    return reply


def refused_alone(flaw: Flaw) -> Reply:
    """The reply to a message that could be read, but not be processed."""
    try:
        message = Message.read(flaw.fields)
    except Refused as error:
        return refusal(flaw.fields, None, error)
    return refusal(flaw.fields, message, flaw.refusal)


def readonly(channel: Channel) -> Refused:
    """The refusal of a second message on a channel that takes one."""
    code = "user.publish.readonly"
    return Refused(coded(code, channel.name), code, f"{channel.name} takes one message, and has it")

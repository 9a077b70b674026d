"""Requests and their answers, as messages: what makes a message a request, and how an answer reports a failure.

A request names a reply channel, `/ret/<ID>/<LDDDDDD>` (`channel.py`), in `ext.replyTo`; its answer is what is published there.
An answer with `ext.error`, `{"errorCode": "user.illegalArgument", "message": "for people"}`, tells that the responder failed;
its `data` may say more. What names another channel is no request to our responders: otherwise a requester could have them
publish where only they may.
"""

from __future__ import annotations

from typing import Any, Final

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields

FAULT: Final = "internal.unknown"
"""The code of a failure that brings none."""
UNTOLD: Final = "the responder failed"
"""What is said to others of a failure that is the responder's own affair."""
MAX_CODE: Final = 200
MAX_TEXT: Final = 500
"""Characters of a code, and of the words beside it, that are sent."""


def reply_channel(fields: Fields) -> str | None:
    """The channel on which an answer to this delivered message is awaited; None if it is no request."""
    ext = fields.get("ext")
    if not isinstance(ext, dict):
        return None
    update = ext.get("update")
    for told in (ext.get("replyTo"), update.get("replyTo") if isinstance(update, dict) else None):
        if is_reply_channel(told):
            return str(told)
    return None


def is_reply_channel(name: object) -> bool:
    """Whether this is the name of a complete reply channel."""
    channel = parse(name) if isinstance(name, str) else None
    return channel is not None and bool(channel.reply_id) and not channel.is_wildcard


def error_answer(code: str, text: str) -> Fields:
    """The `ext` of an answer that reports a failure."""
    return {"error": {"errorCode": code[:MAX_CODE], "message": text[:MAX_TEXT]}}


def error_of(answer: Fields) -> tuple[str, str] | None:
    """Code and text of the failure that an answer reports; None if it reports none. A bare text is one too."""
    ext = answer.get("ext")
    told = ext.get("error") if isinstance(ext, dict) else None
    if isinstance(told, str):
        return FAULT, told
    if not isinstance(told, dict):
        return None
    code, text = told.get("errorCode"), told.get("message")
    return code if isinstance(code, str) and code else FAULT, text if isinstance(text, str) else ""


def failure(error: Exception) -> tuple[str, str, Any]:
    """Code, text and data of the answer that reports this exception. What one with an `error_code` says, and `data`, is for
    the requester; of any other it learns that there was one, and not what."""
    code, data = getattr(error, "error_code", None), getattr(error, "data", None)
    if isinstance(code, str) and code:
        return code, getattr(error, "message", None) or str(error), data
    return FAULT, UNTOLD, data

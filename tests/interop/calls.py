"""The application behind the remote calls of the interop tests."""

from __future__ import annotations

from typing import Any

from crewel import RemoteCallError, Service, Session

calls = Service("calls")


@calls.remote_call("/echo")
async def echo(session: Session, data: Any) -> Any:
    """Return what it was given."""
    return data


@calls.remote_call("/refuse")
async def refuse(session: Session, data: Any) -> Any:
    """Fail as an application does."""
    raise RemoteCallError({"reason": "not today"})


@calls.remote_call("/leave")
async def leave(session: Session, data: Any) -> None:
    """End the session of the caller, as an administrator would."""
    session.disconnect()

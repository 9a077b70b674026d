"""Commands over Bayeux: the remote call `/service/__cmd`, for sessions of operators."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.refusals import told
from crewel.admin.running import run
from crewel.broker.sessions import Session
from crewel.errors import CrewelError, RemoteCallError

CHANNEL: Final = "/service/__cmd"


def answer_commands(admin: Administration) -> None:
    """Carry out what operators publish to the channel, `{"command": "__cmd:…"}`. Nobody else may publish there."""

    async def call(session: Session, data: Any) -> dict[str, Any]:
        try:
            return await run(admin, data.get("command") if isinstance(data, dict) else None, session.name)
        except CrewelError as error:
            raise RemoteCallError(told(error)) from error

    admin.broker.guard.reserve(CHANNEL)
    admin.broker.registry.calls[CHANNEL] = call

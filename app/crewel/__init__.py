"""Crewel: a Bayeux server for Python that does not lose messages.

The names here are what an application is written with; everything else has its place in the tree.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crewel.bayeux.message import Accepted, Message
    from crewel.broker.broker import Broker
    from crewel.broker.dead_letters.dead_letter import DeadLetter
    from crewel.broker.services import Service
    from crewel.broker.session import Session, SessionPart
    from crewel.errors import RemoteCallError
    from crewel.extension import Extension
    from crewel.security.policy import GRANT, IGNORE, Deny, Operation, Refusal, SecurityPolicy

__all__ = [
    "GRANT",
    "IGNORE",
    "Accepted",
    "Broker",
    "DeadLetter",
    "Deny",
    "Extension",
    "Message",
    "Operation",
    "Refusal",
    "RemoteCallError",
    "SecurityPolicy",
    "Service",
    "Session",
    "SessionPart",
]

_HOMES = {
    "Accepted": "crewel.bayeux.message",
    "Broker": "crewel.broker.broker",
    "DeadLetter": "crewel.broker.dead_letters.dead_letter",
    "Deny": "crewel.security.policy",
    "Extension": "crewel.extension",
    "GRANT": "crewel.security.policy",
    "IGNORE": "crewel.security.policy",
    "Message": "crewel.bayeux.message",
    "Operation": "crewel.security.policy",
    "Refusal": "crewel.security.policy",
    "RemoteCallError": "crewel.errors",
    "SecurityPolicy": "crewel.security.policy",
    "Service": "crewel.broker.services",
    "Session": "crewel.broker.session",
    "SessionPart": "crewel.broker.session",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line and the client need few of them."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'crewel' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

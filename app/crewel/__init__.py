"""Crewel: a Bayeux server for Python that does not lose messages.

Applications import the names here; everything else has its place in the packages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crewel.bayeux.message import Accepted as Accepted
    from crewel.bayeux.message import Message as Message
    from crewel.broker.broker import Broker as Broker
    from crewel.broker.dead_letter import DeadLetter as DeadLetter
    from crewel.broker.services import Service as Service
    from crewel.broker.session import Session as Session
    from crewel.broker.session import SessionPart as SessionPart
    from crewel.errors import RemoteCallError as RemoteCallError
    from crewel.extension import Extension as Extension
    from crewel.security.policy import GRANT as GRANT
    from crewel.security.policy import IGNORE as IGNORE
    from crewel.security.policy import Deny as Deny
    from crewel.security.policy import Identity as Identity
    from crewel.security.policy import Operation as Operation
    from crewel.security.policy import Refusal as Refusal
    from crewel.security.policy import SecurityPolicy as SecurityPolicy

_HOMES = {
    "crewel.bayeux.message": ("Accepted", "Message"),
    "crewel.broker.broker": ("Broker",),
    "crewel.broker.dead_letter": ("DeadLetter",),
    "crewel.broker.services": ("Service",),
    "crewel.broker.session": ("Session", "SessionPart"),
    "crewel.errors": ("RemoteCallError",),
    "crewel.extension": ("Extension",),
    "crewel.security.policy": ("Deny", "GRANT", "IGNORE", "Identity", "Operation", "Refusal", "SecurityPolicy"),
}
"""The public names by their modules."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line and the client need few of them."""
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'crewel' has no attribute {name!r}")

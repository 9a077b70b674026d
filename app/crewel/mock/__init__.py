"""Stand-ins for Bayeux services: `Salesforce`, the streaming API of Salesforce."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crewel.mock.salesforce import Salesforce as Salesforce


def __getattr__(name: str) -> Any:
    """Import the stand-in when it is first used: the plugin is loaded in runs without it too."""
    if name == "Salesforce":
        from crewel.mock.salesforce import Salesforce

        return Salesforce
    raise AttributeError(f"module 'crewel.mock' has no attribute {name!r}")

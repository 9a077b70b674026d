"""What happens in the org in some of the named scenarios, after a client has subscribed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from crewel.mock.salesforce import Salesforce
from crewel.mock.scenarios import scenario_of


def act(org: Salesforce, name: str, channel: str = "/event/Order__e") -> None:
    """Do what happens in this scenario after a client has subscribed to the channel: in most, nothing. Raises ValueError for an
    unknown name."""
    does = _ACTS.get(scenario_of(name).name)
    if does is not None:
        does(org, channel)


def _while_away(org: Salesforce, channel: str) -> None:
    org.publish_while_away(channel, {"No__c": "while away"})


def _long_absence(org: Salesforce, channel: str) -> None:
    org.publish(channel, {"No__c": "old"})
    org.advance("80h", keep_up=False)


def _overflow(org: Salesforce, channel: str) -> None:
    org.publish(channel, None, header={"changeType": "GAP_OVERFLOW"})


def _merged(org: Salesforce, channel: str) -> None:
    org.publish(channel, {"Name": "same"}, header={"changeType": "UPDATE", "recordIds": ["001A", "001B", "001C"]})


_ACTS: Final[Mapping[str, Callable[[Salesforce, str], object]]] = {
    "jsforce-1709": _while_away,
    "restforce-589": lambda org, _: org.revoke(),
    "wso2-4768": _while_away,
    "dns-change": lambda org, _: org.move(),
    "long-absence": _long_absence,
    "gap-overflow": _overflow,
    "merged-changes": _merged,
}

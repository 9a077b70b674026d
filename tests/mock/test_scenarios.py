"""Each named scenario: a client with the habit that it is a danger to fails, and one without passes."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewel.mock import Salesforce
from crewel.mock.salesforce_events import NO_RECORD
from crewel.mock.scenario_acts import act
from crewel.mock.scenarios import SCENARIOS, Scenario
from tests.mock.client import StreamingClient

pytestmark = pytest.mark.server

CHANGES = ("gap-overflow", "merged-changes")
NAIVE_S = 0.6
"""How long the naive client has, beside others: it fails by never doing what the right one does at once."""
AT_A_TIME = 4


def channel_of(scenario: Scenario) -> str:
    return "/data/AccountChangeEvent" if scenario.name in CHANGES else "/event/Order__e"


def play(org: Salesforce, scenario: Scenario, habit: str) -> StreamingClient:
    """Let a client subscribe and receive, let the scenario happen, and publish an event after it."""
    channel = channel_of(scenario)
    client = StreamingClient(org, channel, habit)
    is_naive = bool(habit)
    org.play(scenario.name)
    client.start()
    if not until(lambda: subscribed(org, channel) or client.error, is_naive):
        return client
    org.publish(channel, {"No__c": "first"})
    if not until(lambda: client.events or client.error, is_naive):
        return client
    act(org, scenario.name, channel)
    for _ in range(20):  # each wakes the connect, so that the script has something to count
        if until(lambda: org.is_script_over or client.error, is_naive, 0.05):
            break
        org.publish(channel, {"No__c": "more"})
    org.publish(channel, {"No__c": "last"})
    return client


def until(condition: object, is_naive: bool, seconds: float = 0.0) -> bool:
    """Wait for it; for a naive client not for long."""
    assert callable(condition)
    end = time.monotonic() + (seconds or (NAIVE_S if is_naive else 20))
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def subscribed(org: Salesforce, channel: str) -> bool:
    return (org.count("subscribe") > 0 and org.count("connect") > 1) and any(
        each["operation"] == "subscribe" and not each["error"] and not each["fault"] for each in org.history
    )


def has_everything(org: Salesforce, scenario: Scenario, client: StreamingClient, timeout: float) -> None:
    """Raise AssertionError unless the client has all events and has handled all records."""
    end = time.monotonic() + timeout
    while True:
        expected = {each.replay_id for each in org.org.log.retained(client.channel, org.org.now())}
        got = {each["data"]["event"]["replayId"] for each in client.events}
        if client.error is None and expected and expected <= got:
            break
        assert time.monotonic() < end, (client.error, expected - got)
        time.sleep(0.005)
    if scenario.name == "merged-changes":
        assert {"001A", "001B", "001C"} <= set(client.records)
    assert NO_RECORD not in client.records
    org.assert_nothing_missed(timeout)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_right_client_passes(name: str, salesforce: Salesforce) -> None:
    client = play(salesforce, SCENARIOS[name], "")
    has_everything(salesforce, SCENARIOS[name], client, 20)
    assert salesforce.is_script_over
    client.stop()


def passes(name: str) -> bool:
    """Whether the client with this habit has everything, in an org of its own."""
    with Salesforce() as org:
        client = play(org, SCENARIOS[name], name)
        try:
            has_everything(org, SCENARIOS[name], client, NAIVE_S)
        except AssertionError:
            return False
        else:
            return True
        finally:
            client.stop()


def test_a_client_with_the_habit_fails() -> None:
    """Several at the same time: nearly all of it is waiting for what never comes. The first one alone, so that what the first
    server imports is not imported by several threads."""
    first, *others = SCENARIOS
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        found = [passes(first), *threads.map(passes, others)]
    assert [name for name, has_passed in zip(SCENARIOS, found, strict=True) if has_passed] == []


def test_there_are_more_than_twenty() -> None:
    assert len(SCENARIOS) == 25
    assert all(each.summary and each.naive and each.source for each in SCENARIOS.values())


def test_a_scenario_that_there_is_not_is_refused_by_name(salesforce: Salesforce) -> None:
    with pytest.raises(ValueError, match=r"no scenario 'emp'; known are net-43, camel-3247"):
        salesforce.play("emp")

"""The stand-in over HTTP, for tests in other languages: each route is a method of `Salesforce`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from crewel.mock.salesforce import Salesforce
from crewel.mock.scenario_acts import act
from crewel.mock.scenarios import SCENARIOS
from crewel.testing.control import Routes

Answer = Mapping[str, Any]


async def _health(org: Salesforce, _: dict[str, Any]) -> Answer:
    return {"url": org.url, "login_url": org.login_url, "streaming_url": org.streaming_url, "token": org.token}


async def _publish(org: Salesforce, asked: dict[str, Any]) -> Answer:
    channel, data = asked.pop("channel"), asked.pop("data", None)
    publish = org.publish_while_away if asked.pop("while_away", False) else org.publish
    return {"replayId": await asyncio.to_thread(publish, channel, data, **asked)}


async def _script(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.script, asked["script"])
    return {}


async def _add_fault(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.add_fault, asked.pop("name"), **asked)
    return {}


async def _remove_fault(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.remove_fault, asked["name"])
    return {}


async def _clock(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.advance, asked["advance"], keep_up=asked.get("keep_up", True))
    return {}


async def _history(org: Salesforce, _: dict[str, Any]) -> Answer:
    return {"history": await asyncio.to_thread(lambda: org.history)}


async def _missed(org: Salesforce, _: dict[str, Any]) -> Answer:
    return {"missed": await asyncio.to_thread(lambda: org.missed)}


async def _delivered(org: Salesforce, asked: dict[str, Any]) -> Answer:
    return {"delivered": await asyncio.to_thread(org.delivered, asked["channel"])}


async def _play(org: Salesforce, asked: dict[str, Any]) -> Answer:
    scenario = await asyncio.to_thread(org.play, asked["name"])
    return {"name": scenario.name, "summary": scenario.summary, "source": scenario.source}


async def _act(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(act, org, asked["name"], *([asked["channel"]] if "channel" in asked else []))
    return {}


async def _scenarios(_: Salesforce, __: dict[str, Any]) -> Answer:
    return {"scenarios": {each.name: each.summary for each in SCENARIOS.values()}}


async def _forget(org: Salesforce, _: dict[str, Any]) -> Answer:
    return {"forgotten": await asyncio.to_thread(org.forget_sessions)}


async def _revoke(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.revoke, asked.get("token"))
    return {}


async def _restart(org: Salesforce, _: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.restart)
    return {"url": org.url}


async def _reset(org: Salesforce, _: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.reset)
    return {}


async def _move(org: Salesforce, _: dict[str, Any]) -> Answer:
    return {"url": await asyncio.to_thread(org.move)}


async def _wait(org: Salesforce, asked: dict[str, Any]) -> Answer:
    await asyncio.to_thread(org.wait_for_subscriber, asked["channel"], asked.get("timeout_ms", 10_000) / 1000)
    return {}


ROUTES: Final[Routes] = {
    ("GET", "/_mock/health"): (_health, ()),
    ("POST", "/_mock/publish"): (_publish, None),
    ("PUT", "/_mock/script"): (_script, ("script",)),
    ("PUT", "/_mock/faults"): (_add_fault, None),
    ("DELETE", "/_mock/faults"): (_remove_fault, ("name",)),
    ("POST", "/_mock/clock"): (_clock, ("advance", "keep_up")),
    ("GET", "/_mock/history"): (_history, ()),
    ("GET", "/_mock/missed"): (_missed, ()),
    ("POST", "/_mock/delivered"): (_delivered, ("channel",)),
    ("GET", "/_mock/scenarios"): (_scenarios, ()),
    ("POST", "/_mock/play"): (_play, ("name", "channel")),
    ("POST", "/_mock/act"): (_act, ("name", "channel")),
    ("POST", "/_mock/forget"): (_forget, ()),
    ("POST", "/_mock/revoke"): (_revoke, ("token",)),
    ("POST", "/_mock/restart"): (_restart, ()),
    ("POST", "/_mock/reset"): (_reset, ()),
    ("POST", "/_mock/move"): (_move, ()),
    ("POST", "/_mock/wait"): (_wait, ("channel", "timeout_ms")),
}
"""Method and path, what answers, and the fields that it takes; None if what answers checks them."""

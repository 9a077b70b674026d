"""What the tests of transports share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from crewel import server
from crewel.settings import Settings, load
from crewel.transports.fast_lane import FastLane


@pytest.fixture
def settings() -> Settings:
    """No store and no extension."""
    return load(None, ["bayeux.extensions=", "storage.enabled=false"])


@pytest.fixture
async def lane(settings: Settings) -> AsyncIterator[FastLane]:
    """The lane of a server that hands nothing to aiohttp."""
    app = web.Application()
    broker = server.attach(app, settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    yield lane
    await lane.close(0)
    await broker.close()

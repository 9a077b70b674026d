"""Crewel servers for tests: `async with serving() as server:`, `with serving_in_thread() as server:`, and, in
`crewel.testing.plugin`, the pytest fixtures `crewel` and `crewel_client`.

A server runs in a thread of this process, on a free port, and its clock can be moved ahead.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crewel.testing.clock import VirtualLoop as VirtualLoop
    from crewel.testing.facades import AsyncServer as AsyncServer
    from crewel.testing.facades import Server as Server
    from crewel.testing.facades import serving as serving
    from crewel.testing.facades import serving_in_thread as serving_in_thread
    from crewel.testing.instance import ConnectedClient as ConnectedClient
    from crewel.testing.instance import State as State
    from crewel.testing.loop_thread import LoopThread as LoopThread
    from crewel.testing.test_client import TestClient as TestClient

_HOMES = {
    "AsyncServer": "facades",
    "ConnectedClient": "instance",
    "LoopThread": "loop_thread",
    "Server": "facades",
    "State": "instance",
    "TestClient": "test_client",
    "VirtualLoop": "clock",
    "serving": "facades",
    "serving_in_thread": "facades",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the plugin is loaded in runs without a server too."""
    if name in _HOMES:
        return getattr(import_module(f"crewel.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'crewel.testing' has no attribute {name!r}")

"""The broker's worlds, for extensions."""

from tests.broker.conftest import make_world, world

__all__ = ["make_world", "world"]

"""The fixtures of Crewel for the tests of this directory."""

pytest_plugins = ["crewel.testing.plugin", "crewel.mock.plugin"]

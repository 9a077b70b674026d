"""What import-linter cannot say: what may import the broker, how large a circle may be, and that settings are obeyed."""

import re
from functools import cache

import pytest

from crewel.settings.table import declared
from tests.house.imports import circles, dependencies, imported
from tests.house.source import ROOT, dotted, modules, shown

LARGEST_CIRCLE = 3
"""Modules that import each other at most, imports for types included."""
MOST_CIRCLES = 6
"""The number may only shrink."""
BROKER = "crewel.broker.broker"
MAY_NAME_THE_BROKER = {
    "crewel",
    "crewel.api",
    "crewel.broker.upward",  # passes on what lower parts report
    "crewel.broker.services",  # this and the next are what applications write against
    "crewel.extension",
    "crewel.pages",
    "crewel.server",
    "crewel.nodes.membership",  # the root of what makes a server one of several
    "crewel.telemetry",  # binds itself to hooks of many parts
    "crewel.mock.salesforce_extension",  # this and the next are roots of their own: servers under test
    "crewel.testing.instance",
}
NAMES_THE_BROKER_STILL = {
    "crewel.extensions.ack",
    "crewel.extensions.activity",
    "crewel.extensions.replay",
    "crewel.extensions.update",
    "crewel.transports.endpoint",
}
"""Modules that get the whole broker where they need a part of it. The list may only shrink."""
MAY_IMPORT = {
    "client": {
        "bayeux",
        "errors",
        "outgoing_proxy",
        "qos",
        "trace_context",
    },  # the protocol and its options, not the server
    "conformance": {"outgoing_proxy"},  # it tests any Bayeux server, so it must not judge by Crewel's own code
    "extensions": {"bayeux", "broker", "delivery", "errors", "extension", "metrics", "qos", "settings"},
    "pipeline": {"check_result", "errors", "outgoing_proxy", "standard_output", "storage"},  # the keys of the store
}
"""What packages import that stand beside the layers of pyproject.toml. A package that is added is forbidden to them."""


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_beside_the_layers_import_what_is_offered_to_them_and_nothing_else(package: str) -> None:
    files = [file for file in modules() if dotted(file).split(".")[:2] == ["crewel", package]]
    allowed = {package, *MAY_IMPORT[package]}
    wrong = [
        f"{shown(file)} imports {name}"
        for file in files
        for name in imported(file)
        if name.startswith("crewel.") and name.split(".")[1] not in allowed
    ]
    assert files
    assert not wrong


def test_only_the_pipeline_imports_the_pipeline() -> None:
    wrong = [
        f"{shown(file)} imports {name}"
        for file in modules()
        if not dotted(file).startswith("crewel.pipeline")
        for name in imported(file)
        if name.startswith("crewel.pipeline")
    ]
    assert not wrong


def test_circles_of_imports_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_no_circle_of_imports_is_larger_than_it_was_and_there_are_no_more() -> None:
    found = sorted(map(sorted, circles(dependencies())), key=len)
    assert len(found) <= MOST_CIRCLES, found
    assert len(found[-1]) <= LARGEST_CIRCLE, found[-1]


def package(name: str) -> str:
    """Return the package that a module is in: of the broker, the one of its subject."""
    parts = name.split(".")
    return ".".join(parts[1 : 3 if parts[1] == "broker" and len(parts) > 3 else 2])


def test_no_circle_of_imports_goes_through_several_packages() -> None:
    assert not [sorted(circle) for circle in circles(dependencies()) if len({*map(package, circle)}) > 1]


def test_only_the_composition_root_and_the_facades_name_the_broker() -> None:
    naming = {name for name, names in dependencies().items() if BROKER in names}
    naming -= MAY_NAME_THE_BROKER | {name for name in naming if name.startswith("crewel.admin.")}
    assert naming <= NAMES_THE_BROKER_STILL, sorted(naming - NAMES_THE_BROKER_STILL)


@cache
def outside_settings() -> dict[str, str]:
    """The text of each module that may read settings."""
    settings = ROOT / "app" / "crewel" / "settings"
    return {shown(file): file.read_text("utf-8") for file in modules() if not file.is_relative_to(settings)}


def readers(name: str) -> list[str]:
    """The modules that read this setting: from its group, or from settings that they were given."""
    group, _, last = name.rpartition(".")
    read = re.compile(rf"(settings|{group.rpartition('.')[2] or '_'})\.{last}\b")
    return [file for file, text in outside_settings().items() if read.search(text)]


@pytest.mark.parametrize("name", list(declared()))
def test_every_setting_is_obeyed_somewhere(name: str) -> None:
    """A setting that no module reads would be a promise that is not kept."""
    assert readers(name)


@pytest.mark.parametrize("name", ["http.name", "http.count", "delivery.timeout"])
def test_attributes_of_the_same_name_do_not_count_as_readers(name: str) -> None:
    assert not readers(name)

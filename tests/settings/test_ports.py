"""The ports between nodes: what no machine has is refused, also what only a further worker would need."""

import pytest

from crewel.errors import SettingsError
from crewel.settings import load
from crewel.settings.storage import port_of

NONE: dict[str, str] = {}


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (["cluster.listen=10.0.0.5:65536"], "cluster.listen 10.0.0.5:65536: the port must be 0 to 65535"),
        (["cluster.advertise=a.example:65536"], "cluster.advertise a.example:65536: the port must be 1 to 65535"),
        (["cluster.advertise=a.example:0"], "cluster.advertise a.example:0: the port must be 1 to 65535"),
        (
            ["cluster.listen=10.0.0.5:65534", "cluster.workers=2"],
            "cluster.listen 10.0.0.5:65534: the port must be 0 to 65533, with 2 workers, which use 3 ports",
        ),
        (
            ["cluster.listen=:7080", "cluster.advertise=[fd00::5]:65534", "cluster.workers=2"],
            "cluster.advertise [fd00::5]:65534: the port must be 1 to 65533, with 2 workers, which use 3 ports",
        ),
        (
            ["cluster.advertise=a.example:7080", "cluster.workers=2"],
            "cluster.advertise a.example:7080 has a port, and each worker has a port of its own: give cluster.listen a port"
            " too, so that both count up together, or leave out the port of cluster.advertise",
        ),
    ],
)
def test_a_port_that_cannot_be_is_refused_by_the_setting_to_change(sets: list[str], why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(overrides=sets, environ=NONE)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    "sets",
    [
        ["cluster.listen=10.0.0.5:65535", "cluster.advertise=a.example:65535"],
        ["cluster.listen=10.0.0.5:65533", "cluster.advertise=a.example:65533", "cluster.workers=2"],
        ["cluster.listen=0.0.0.0:0", "cluster.advertise=a.example", "cluster.workers=2"],
        ["cluster.listen=[::]:0", "cluster.advertise=fd00::5", "cluster.workers=2"],
        ["cluster.listen=0.0.0.0:0", "cluster.advertise=a.example:7080"],
    ],
)
def test_ports_that_can_be_are_taken(sets: list[str]) -> None:
    assert load(overrides=sets, environ=NONE).cluster.listen == sets[0].partition("=")[2]


@pytest.mark.parametrize(
    ("advertise", "port"),
    [
        ("", None),
        ("a", None),
        ("a:80", 80),
        ("fd00::5", None),
        ("[fd00::5]", None),
        ("[fd00::5]:80", 80),
        ("a:b", None),
    ],
)
def test_an_address_has_a_port_or_none(advertise: str, port: int | None) -> None:
    assert port_of(advertise) == port

"""How long requests wait for a node, which must be less than a session lives without a connect."""

import pytest

from crewel.settings import Settings, load

NONE: dict[str, str] = {}


def test_the_defaults_do_not_contradict_each_other() -> None:
    settings = Settings()
    assert settings.hold_ms == settings.cluster.hold_ms
    assert settings.cluster.lease_ms < settings.hold_ms
    assert settings.hold_ms + settings.again_ms < settings.bayeux.max_interval_ms


@pytest.mark.parametrize("max_interval_ms", [0, 8, 400, 1500, 4000, 10000, 60000])
@pytest.mark.parametrize("hold_ms", [0, 1000, 10000, 600000])
def test_a_session_does_not_end_while_its_client_waits(max_interval_ms: int, hold_ms: int) -> None:
    sets = [f"bayeux.max_interval_ms={max_interval_ms}", f"cluster.hold_ms={hold_ms}"]
    settings = load(overrides=sets, environ=NONE)
    assert 0 <= settings.hold_ms <= hold_ms
    assert settings.hold_ms + settings.again_ms < max(max_interval_ms, 1)


@pytest.mark.parametrize("sets", [["cluster.workers=2"], ["cluster.enabled=true", "storage.url=redis://localhost"]])
def test_a_hold_that_is_shortened_is_explained_where_there_are_nodes(sets: list[str]) -> None:
    long = "cluster.hold_ms=10000"
    assert load(overrides=[long], environ=NONE).why_shorter_hold is None
    assert load(overrides=sets, environ=NONE).why_shorter_hold is None
    why = load(overrides=[*sets, long], environ=NONE).why_shorter_hold
    assert why is not None
    assert "cluster.hold_ms is 10000, and bayeux.max_interval_ms 10000; requests wait for 8000 ms" in why

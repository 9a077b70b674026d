"""Channels: who hears what, and how long a channel is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux.channel import Channel, matches, parse
from crewel.broker.addressing.channels import IDLE_SWEEPS, Channels
from crewel.broker.session import Session
from crewel.errors import SettingsError
from tests.broker.world import World


@pytest.fixture
def channels() -> Channels:
    return Channels()


@pytest.fixture
def sessions(world: World) -> list[Session]:
    return [Session(world.broker, str(number)) for number in range(3)]


def channel(name: str) -> Channel:
    parsed = parse(name)
    assert parsed is not None
    return parsed


class TestSubscribers:
    def test_each_once_however_many_subscriptions_match(self, channels: Channels, sessions: list[Session]) -> None:
        for name in ("/a/b", "/a/*", "/**"):
            channels.subscribe(sessions[0], name)
        channels.subscribe(sessions[1], "/a/**")
        assert set(channels.subscribers(channel("/a/b"))) == set(sessions[:2])
        assert len(list(channels.subscribers(channel("/a/b")))) == 2

    def test_one_session_can_be_looked_up(self, channels: Channels, sessions: list[Session]) -> None:
        for name in ("/a/b", "/a/*"):
            channels.subscribe(sessions[0], name)
        channels.subscribe(sessions[1], "/b")
        hears = [channels.is_subscriber(each, channel("/a/b")) for each in sessions]
        assert hears == [True, False, False]
        assert channels.most_subscribers(channel("/a/b")) == 2
        assert channels.most_subscribers(channel("/b")) == 1
        channels.subscribe(sessions[0], "/**")
        assert not channels.is_subscriber(sessions[0], channel("/service/x"))
        assert channels.most_subscribers(channel("/service/x")) == 0

    def test_nobody_hears_a_channel_without_subscribers(self, channels: Channels, sessions: list[Session]) -> None:
        channels.create("/a")
        channels.subscribe(sessions[0], "/b")
        assert list(channels.subscribers(channel("/a"))) == []

    def test_unsubscribing_ends_it(self, channels: Channels, sessions: list[Session]) -> None:
        channels.subscribe(sessions[0], "/a")
        channels.subscribe(sessions[0], "/b")
        channels.unsubscribe(sessions[0], "/a")
        channels.unsubscribe(sessions[0], "/nowhere")
        channels.unsubscribe(sessions[1], "/b")
        assert sessions[0].subscriptions == {"/b"}
        assert [channels.count(name) for name in ("/a", "/b", "/nowhere")] == [0, 1, 0]
        channels.unsubscribe_all(sessions[0])
        assert sessions[0].subscriptions == set()
        assert channels.count("/b") == 0

    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from(["/a", "/a/b", "/a/*", "/*", "/**", "/a/**", "/service/x"]))
        ),
        st.sampled_from(["/a", "/a/b", "/a/b/c", "/b", "/service/x", "/meta/x"]),
    )
    def test_finding_subscribers_agrees_with_matching_each_subscription(
        self, script: list[tuple[int, str]], name: str
    ) -> None:
        world = World()
        try:
            channels = Channels()
            sessions = [Session(world.broker, str(number)) for number in range(3)]
            for number, pattern in script:
                channels.subscribe(sessions[number], pattern)
            expected = {sessions[number] for number, pattern in script if matches(pattern, name)}
            assert set(channels.subscribers(channel(name))) == expected
        finally:
            world.close()


class TestLifetime:
    def test_a_channel_is_forgotten_after_three_idle_sweeps_in_a_row(
        self, channels: Channels, sessions: list[Session]
    ) -> None:
        channels.create("/a")
        channels.subscribe(sessions[0], "/kept")
        for _ in range(IDLE_SWEEPS - 1):
            channels.sweep()
        assert "/a" in channels
        channels.create("/a")  # a publish
        for _ in range(IDLE_SWEEPS - 1):
            channels.sweep()
        assert sorted(channels) == ["/a", "/kept"]
        channels.sweep()
        assert sorted(channels) == ["/kept"]
        assert len(channels) == 1

    def test_a_subscriber_in_between_starts_the_count_again(self, channels: Channels, sessions: list[Session]) -> None:
        channels.create("/a")
        channels.sweep()
        channels.sweep()
        channels.subscribe(sessions[0], "/a")
        channels.sweep()
        channels.unsubscribe(sessions[0], "/a")
        channels.sweep()
        channels.sweep()
        assert "/a" in channels
        channels.sweep()
        assert "/a" not in channels


class TestRules:
    @pytest.mark.parametrize(
        ("pattern", "name", "applies"),
        [
            ("/chat/*", "/chat/1", True),
            ("/chat/**", "/chat/1/2", True),
            ("/chat", "/chat", True),
            ("/chat", "/chat/1", False),
            ("/chat/*", "/chat", False),
        ],
    )
    def test_rules_come_from_matching_patterns_and_not_from_parents(
        self, channels: Channels, pattern: str, name: str, applies: bool
    ) -> None:
        assert not channels.is_lazy(channel(name))
        channels.make_lazy([pattern])
        assert channels.is_lazy(channel(name)) is applies

    def test_a_bad_pattern_is_a_wrong_setting(self, channels: Channels) -> None:
        with pytest.raises(SettingsError, match="//a"):
            channels.make_lazy(["//a"])

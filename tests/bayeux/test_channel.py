"""Channel names (Bayeux 1.0, section 2)."""

import string
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux import channel as channel_module
from crewel.bayeux.channel import MAX_NAME, Kind, matches, may_have_presence, parse, presence_of, why_invalid
from tests.texts import texts

ALLOWED = string.ascii_letters + string.digits + " !#$()*+-./@_{~}"
segments = texts("ab*.", min_size=1, max_size=3) | st.sampled_from(["*", "**", "a", "b", "meta", "service"])
paths = st.lists(segments, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


class TestGrammar:
    @pytest.mark.parametrize(
        "name",
        [
            "/a",
            "/foo/bar",
            "/*",
            "/**",
            "/foo/*",
            "/foo/**",
            "/a***",
            "/foo*",
            "/*a/b",
            "/a b",
            "/x/{v}",
            "/.",
            "/..",
            "/meta",
            "/service",
            "/" + ALLOWED.replace("/", "").replace("*", ""),
        ],
    )
    def test_a_valid_name_is_taken_as_it_is(self, name: str) -> None:
        channel = parse(name)
        assert channel is not None
        assert channel.name == name

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "/",
            "//",
            "a",
            "a/b",
            "/a//b",
            "//a",
            "/a//",
            "/*/a",
            "/**/a",
            "/a/*/b",
            "/a/**/*",
            "/*/",
            "/a\n",
            "\n/a",
        ],
    )
    def test_a_name_with_a_broken_structure_is_none(self, name: str) -> None:
        # `/*/` is the one with a trailing slash that stays a good name.
        assert (parse(name) is None) is (name != "/*/")

    @pytest.mark.parametrize("character", [*",;:?&=%\"'<>[]\\^|`\n\t\0", "é", "\uff41", "\u0661", "😀"])
    def test_characters_outside_the_set_are_refused(self, character: str) -> None:
        assert parse(f"/a{character}") is None
        assert parse(f"/{character}a") is None

    def test_a_trailing_slash_is_not_part_of_the_name(self) -> None:
        channel = parse("/foo/")
        assert channel is not None
        assert (channel.name, channel.patterns) == ("/foo", ("/**", "/*", "/foo"))

    def test_a_name_is_bounded(self) -> None:
        assert parse("/" + "a" * (MAX_NAME - 1)) is not None
        assert parse("/" + "a" * MAX_NAME) is None

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("/a", ""),
            ("a", "begins with a slash"),
            ("", "begins with a slash"),
            ("/", "begins with a slash"),
            ("/" + "a" * MAX_NAME, f"at most {MAX_NAME} characters"),
            ("/bücher", "'ü' is not allowed"),
            ("/a//b", "empty segment"),
            ("/a/*/b", "the last segment only"),
            ("/a/../b", "no segment is . or .."),
        ],
    )
    def test_an_invalid_name_is_explained(self, name: str, why: str) -> None:
        assert (why_invalid(name) == "") is (why == "")
        assert why in why_invalid(name)

    @given(st.text("/a*ü .", max_size=6))
    def test_a_name_is_explained_if_clients_may_not_use_it(self, name: str) -> None:
        channel = parse(name)
        assert (why_invalid(name) == "") is (channel is not None and not channel.has_dot_segments)

    def test_case_matters(self) -> None:
        assert not matches("/Foo", "/foo")

    def test_a_channel_shows_its_name(self) -> None:
        assert repr(parse("/a")) == "Channel('/a')"
        assert str(parse("/a/")) == "/a"

    @pytest.mark.parametrize(
        ("name", "has_dot_segments"),
        [
            *((name, True) for name in ("/.", "/..", "/../a", "/a/.", "/a/../", "/a/./b", "/a/../*", "/service/..")),
            *((name, False) for name in ("/...", "/a.", "/.a", "/..a/b", "/a/..b", "/a. /b")),
        ],
    )
    def test_a_name_that_clients_of_http_change_takes_no_publish(self, name: str, has_dot_segments: bool) -> None:
        channel = parse(name)
        assert channel is not None
        assert channel.has_dot_segments is has_dot_segments
        assert channel.is_publishable is not has_dot_segments

    @given(paths)
    def test_what_was_parsed_parses_to_itself(self, name: str) -> None:
        channel = parse(name)
        if channel is not None:
            again = parse(channel.name)
            assert again is not None
            assert (again.name, again.kind, again.patterns) == (channel.name, channel.kind, channel.patterns)


class TestKind:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("/meta/handshake", Kind.META),
            ("/meta/x/y", Kind.META),
            ("/meta/*", Kind.META),
            ("/service/x", Kind.SERVICE),
            ("/service/**", Kind.SERVICE),
            ("/meta", Kind.BROADCAST),
            ("/service", Kind.BROADCAST),
            ("/metadata/x", Kind.BROADCAST),
            ("/services/x", Kind.BROADCAST),
            ("/a/meta/x", Kind.BROADCAST),
            ("/Meta/x", Kind.BROADCAST),
            ("/**", Kind.BROADCAST),
        ],
    )
    def test_the_whole_first_segment_decides(self, name: str, kind: Kind) -> None:
        channel = parse(name)
        assert channel is not None
        assert channel.kind is kind

    @pytest.mark.parametrize(
        ("name", "is_wildcard"), [("/*", True), ("/a/**", True), ("/a***", False), ("/foo*", False), ("/a", False)]
    )
    def test_only_a_whole_last_segment_is_a_wildcard(self, name: str, is_wildcard: bool) -> None:
        channel = parse(name)
        assert channel is not None
        assert channel.is_wildcard is is_wildcard
        assert channel.is_publishable is not is_wildcard


def naive_match(pattern: str, name: str) -> bool:
    """The rule in words: segment by segment, `*` stands for one and a last `**` for one or more."""
    wanted, given_segments = pattern.split("/")[1:], name.split("/")[1:]
    if pattern == name:
        return True
    if wanted[-1] == "**":
        return len(given_segments) >= len(wanted) and given_segments[: len(wanted) - 1] == wanted[:-1]
    if wanted[-1] == "*":
        return len(given_segments) == len(wanted) and given_segments[:-1] == wanted[:-1]
    return False


class TestMatching:
    NAMES = ("/foo", "/foo/bar", "/foo/bar/baz", "/service/x", "/meta/connect")

    @pytest.mark.parametrize(
        ("pattern", "heard"),
        [
            ("/*", ["/foo"]),
            ("/**", ["/foo", "/foo/bar", "/foo/bar/baz"]),
            ("/foo/*", ["/foo/bar"]),
            ("/foo/**", ["/foo/bar", "/foo/bar/baz"]),
            ("/foo", ["/foo"]),
            ("/service/*", []),
            ("/service/x", []),
            ("/meta/**", []),
            ("/meta/connect", []),
        ],
    )
    def test_the_table_of_the_reference(self, pattern: str, heard: list[str]) -> None:
        assert [name for name in self.NAMES if matches(pattern, name)] == heard

    def test_the_patterns_are_consulted_widest_first(self) -> None:
        channel = parse("/a/b/c")
        assert channel is not None
        assert channel.patterns == ("/**", "/a/**", "/a/b/**", "/a/b/*", "/a/b/c")

    def test_nothing_matches_an_invalid_name(self) -> None:
        assert not matches("/**", "/a//b")
        assert not matches("//", "/a")

    def test_what_the_server_says_of_itself_is_heard_by_its_whole_name_only(self) -> None:
        """Design, section 10: no wildcard of a client hears `/__sys__*`."""
        assert matches("/__sys__deadMessage", "/__sys__deadMessage")
        assert not matches("/*", "/__sys__deadMessage")
        assert not matches("/**", "/__sys__/a")
        assert matches("/a/**", "/a/__sys__x")

    @pytest.mark.parametrize("pattern", ["/**", "/*", "/ret/**", "/ret/*", "/ret/a1/**", "/ret/other/*"])
    def test_an_answer_is_heard_by_no_pattern_of_others(self, pattern: str) -> None:
        """Design, 3.9: no other wildcard sees a reply channel."""
        assert not matches(pattern, "/ret/a1/3000001")

    @pytest.mark.parametrize("pattern", ["/ret/a1/*", "/ret/a1/3000001"])
    def test_an_answer_is_heard_by_its_client_and_by_name(self, pattern: str) -> None:
        assert matches(pattern, "/ret/a1/3000001")

    @given(paths, paths)
    def test_matching_agrees_with_the_rule_in_words(self, pattern: str, name: str) -> None:
        channel, subscribed = parse(name), parse(pattern)
        if channel is None or subscribed is None:
            assert not matches(pattern, name)
        elif channel.kind is Kind.BROADCAST:
            assert matches(pattern, name) is naive_match(pattern, name)
        else:
            assert not matches(pattern, name)

    @given(paths)
    def test_no_pattern_is_consulted_twice(self, name: str) -> None:
        channel = parse(name)
        if channel is not None:
            assert len(set(channel.patterns)) == len(channel.patterns)
            assert channel.name in channel.patterns


class TestReplyChannels:
    """`/ret/<ID>/<LDDDDDD>` (xMsg's `ret:<ID>:LDDDDDD`)."""

    @pytest.mark.parametrize(
        ("name", "reply_id"),
        [
            ("/ret/a1/3000000", "a1"),
            ("/ret/A-b_9/9999999", "A-b_9"),
            ("/ret/" + "f" * 64 + "/1000000", "f" * 64),
            ("/ret/a1/4999999/", "a1"),
            ("/ret/a1/*", "a1"),
            ("/ret/a1", ""),
            ("/ret/a1/x", ""),
            ("/ret/a1/300000", ""),
            ("/ret/a1/30000000", ""),
            ("/ret/a1/0000001", ""),
            ("/ret/a1/3000000/1", ""),
            ("/ret/a1/**", ""),
            ("/ret/*", ""),
            ("/ret/**", ""),
            ("/ret/a!/3000000", ""),
            ("/ret/" + "f" * 65 + "/1000000", ""),
        ],
    )
    def test_what_lies_below_ret_is_a_reply_channel_and_complete_ones_have_an_owner(
        self, name: str, reply_id: str
    ) -> None:
        channel = parse(name)
        assert channel is not None
        assert (channel.is_reply, channel.reply_id) == (True, reply_id)
        assert channel.kind is Kind.BROADCAST
        assert set(channel.patterns) == {channel.name, *([f"/ret/{reply_id}/*"] if reply_id else [])}

    @pytest.mark.parametrize("name", ["/ret", "/retro/a1/3000000", "/a/ret/a1/3000000", "/service/ret/a1/3000000"])
    def test_other_names_are_not(self, name: str) -> None:
        channel = parse(name)
        assert channel is not None
        assert (channel.is_reply, channel.reply_id) == (False, "")


class TestPresence:
    """The channels on which the members of others change."""

    @pytest.mark.parametrize(
        ("name", "watched"),
        [
            ("/__sys__presence/room", "/room"),
            ("/__sys__presence/a/b", "/a/b"),
            ("/__sys__presence", None),
            ("/__sys__presences/room", None),
            ("/__sys__deadMessage", None),
            ("/__sys__presence/room/*", None),
            ("/__sys__presence/meta/x", None),
            ("/__sys__presence/service/x", None),
            ("/__sys__presence/ret/a/1000000", None),
            ("/__sys__presence/__sys__presence/room", None),
            ("/room", None),
        ],
    )
    def test_a_channel_of_changes_names_what_it_is_about(self, name: str, watched: str | None) -> None:
        channel = parse(name)
        assert channel is not None
        found = presence_of(channel)
        assert (None if found is None else found.name) == watched

    @pytest.mark.parametrize(
        ("name", "may"),
        [
            ("/room", True),
            ("/a/*", False),
            ("/a/./b", False),
            ("/meta/x", False),
            ("/service/x", False),
            ("/ret/a", False),
        ],
    )
    def test_sessions_can_be_present_on_channels_of_applications(self, name: str, may: bool) -> None:
        channel = parse(name)
        assert channel is not None
        assert may_have_presence(channel) is may


class TestMemory:
    """The memory of names that are not used any more."""

    @pytest.mark.uncounted  # following both memory and branches takes seconds
    def test_deep_names_that_were_parsed_take_a_bounded_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each of these has 126 patterns of 130 characters."""
        monkeypatch.setattr(channel_module, "_REMEMBERED_SIZE", 2**21)
        tracemalloc.start()
        try:
            parse("/first")
            before = tracemalloc.get_traced_memory()[0]
            for number in range(190):
                assert parse(f"/{number:04}" + "/a" * 125) is not None
            assert tracemalloc.get_traced_memory()[0] - before < 3 * 2**20
        finally:
            tracemalloc.stop()

    def test_a_name_that_was_parsed_lately_is_the_same_channel(self) -> None:
        assert parse("/lately/a") is parse("/lately/a")

    def test_long_names_are_not_remembered(self) -> None:
        name = "/" + "a" * 300
        assert parse(name) is not parse(name)

    def test_a_full_memory_is_emptied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = parse("/full/first")
        monkeypatch.setattr(channel_module, "_REMEMBERED_SIZE", 0)
        assert parse("/full/second") is not None
        monkeypatch.undo()
        assert parse("/full/first") is not first

"""Who is owed what: patterns as the server matches them, and subscriptions with a choice of their own."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from crewel.bayeux.channel import Kind, parse
from crewel.pipeline.transformations.expected import held_by, patterns_of, stored, with_channel
from tests.pipeline.frames import frame, of_rows, silver, told

CHANNELS = [
    "/a",
    "/a/b",
    "/a/b/c",
    "/a***",
    "/foo*/x",
    "/__sys__/login",
    "/ret/joe/1000001",
    "/ret/joe",
    "/ret/joe/17",
    "/retold/a",
    "/metadata/x",
    "/meta/connect",
    "/service/x",
    "/ a/#",
]
SEGMENT = st.text("ab*- #", min_size=1, max_size=3).filter(lambda text: text not in ("*", "**"))


@settings(max_examples=2, deadline=None)
@given(st.lists(st.lists(SEGMENT, min_size=1, max_size=5), min_size=1, max_size=200))
def test_patterns_are_those_of_the_server(spark: SparkSession, drawn: list[list[str]]) -> None:
    names = [*CHANNELS, *("/" + "/".join(segments) for segments in drawn)]
    rows = of_rows(spark, [(name,) for name in names], "channel STRING")
    for row in rows.select("channel", patterns_of(f.col("channel")).alias("patterns")).collect():
        channel = parse(row["channel"])
        assert channel is not None
        expected = channel.patterns if channel.kind is Kind.BROADCAST else ()
        assert row["patterns"] == list(expected), row["channel"]


def test_what_nobody_is_owed_has_no_patterns(spark: SparkSession) -> None:
    rows = of_rows(spark, [("",)], "channel STRING")
    assert rows.select(patterns_of(f.col("channel")).alias("p")).first()["p"] == []


def test_an_interval_holds_what_came_after_its_beginning_until_its_end(spark: SparkSession) -> None:
    published = frame(
        spark, "fact_published", [{"ms": each, "log_id": each, "channel": "/a/b"} for each in range(1, 7)]
    )
    intervals = frame(
        spark,
        "intervals",
        [
            {"session": "joe", "pattern": "/a/*", "from_id": 2, "until_id": 4},
            {"session": "joe", "pattern": "/**", "from_id": 5},
            {"session": "ann", "pattern": "/b/**", "from_id": 0},
        ],
    )
    found = held_by(published, intervals)
    assert told(found, "session", "log_id", "pattern") == [("joe", 3, "/a/*"), ("joe", 4, "/a/*"), ("joe", 6, "/**")]


def test_a_message_is_stored_once_however_many_get_it(spark: SparkSession) -> None:
    """What a consumer group gets is published too, and what is in the history of a topic alone has no channel in its fact."""
    tables = silver(
        spark,
        fact_published=[{"log_id": each, "channel": "/a"} for each in (1, 2)] + [{"log_id": 4, "channel": ""}],
        fact_addressed=[
            *({"log_id": 1, "channel": "/a", "receiver": f"group:/a {name}", "is_queue": True} for name in ("x", "y")),
            *({"log_id": 3, "channel": "/b", "receiver": f"client/{name}/1"} for name in ("joe", "ann")),
            {"log_id": 5, "channel": "/c", "receiver": "client/joe", "is_queue": True},
        ],
    )
    assert told(stored(tables), "log_id", "channel") == [(1, "/a"), (2, "/a"), (3, "/b"), (5, "/c")]


def test_the_channel_of_a_message_is_found(spark: SparkSession) -> None:
    tables = silver(
        spark,
        fact_published=[{"log_id": 1, "channel": "/a"}, {"log_id": 2, "channel": ""}],
        fact_addressed=[
            {"log_id": each, "channel": "/b", "receiver": who} for each in (2, 3) for who in ("joe", "ann")
        ],
        fact_redriven=[
            {"log_id": 4, "message_id": "3"},
            {"log_id": 5, "message_id": "1"},
            {"log_id": 6, "message_id": "no number"},
            *({"log_id": each, "message_id": str(each - 1)} for each in (9, 10, 11)),  # again and again
            {"log_id": 8, "message_id": "3"},
        ],
    )
    rows = of_rows(spark, [(each,) for each in range(1, 12)], "log_id BIGINT")
    found = sorted(told(with_channel(rows, tables), "log_id", "channel"))
    assert found == [
        (1, "/a"),
        (2, "/b"),
        (3, "/b"),
        (4, "/b"),
        (5, "/a"),
        (6, None),
        (7, None),
        *((each, "/b") for each in range(8, 12)),
    ]

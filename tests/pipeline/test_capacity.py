"""Capacity by hour and channel, from small frames."""

from pyspark.sql import SparkSession

from crewel.pipeline.transformations.capacity import capacity, messages, volumes
from tests.pipeline.frames import silver, time, told

HOUR = 3_600_000


def test_everything_is_counted_by_hour_and_channel(spark: SparkSession) -> None:
    tables = silver(
        spark,
        fact_published=[
            {"place": "1-0", "log_id": 1, "channel": "/a", "bytes": 50.0},
            {"place": "1-0", "log_id": 2, "channel": "/b", "bytes": 50.0},
            {"place": f"{HOUR}-0", "log_id": 3, "channel": "/a", "bytes": 50.0},
            {"place": f"{3 * HOUR}-0", "log_id": 4, "channel": "/a"},
        ],
        fact_ended=[
            {"place": "2-0", "log_id": 1, "receiver": "client/joe/1", "bytes": 20.0},
            {"place": "2-0", "log_id": 1, "receiver": "client/ann/1", "number": 1, "bytes": 20.0},
        ],
        event_traffic=[{"place": "1-0", "channel": "/a", "published": 3, "since": time(1), "bytes": 60.0}],
    )
    found = capacity(volumes(tables, tables))
    hours = [time(each * HOUR).astimezone().replace(tzinfo=None) for each in range(4)]
    assert told(found, "channel", "hour", "persistent", "transient", "deliveries", "bytes", "sessions", "trend") == [
        ("/a", hours[0], 1, 3, 2, 150, 2, None),
        ("/a", hours[1], 1, 0, 0, 50, 0, 0.25),
        ("/a", hours[3], 1, 0, 0, 0, 0, None),
        ("/b", hours[0], 1, 0, 0, 50, 0, None),
    ]


def test_messages_are_counted_from_one_moment_to_another(spark: SparkSession) -> None:
    """Of each hour, only what is in the time counts. A message with receivers and subscribers counts once."""
    tables = silver(
        spark,
        fact_published=[{"ms": each, "log_id": each, "channel": "/a"} for each in (9, 10, 20, 21)]
        + [{"ms": 15, "log_id": 16, "channel": ""}],
        fact_addressed=[
            {"ms": 10, "log_id": 10, "channel": "/a", "receiver": "client/joe/1"},
            {"ms": 11, "log_id": 11, "channel": "/a", "receiver": "client/joe/1"},
            {"ms": 11, "log_id": 11, "channel": "/a", "receiver": "client/ann/1"},
        ],
        event_traffic=[
            {"ms": each, "channel": "/a", "published": 5, "since": time(1), "until": time(2)} for each in (12, 22)
        ],
    )
    assert messages(tables, time(10), time(20)) == 2 + 1 + 5

"""Rejections for tests: facts, dead letters and events of messages that some receivers took, and others rejected."""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from crewel.storage.data_shape import shape_of
from tests.pipeline.frames import silver, time

USUAL = '{"data":{"n":7}}'
CODE = "user.update.error"


class Scene:
    """Facts, dead letters and events of messages, each on a channel and for some receivers."""

    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []
        self.addressed: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        self.redriven: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []
        self._sampled: dict[str, tuple[int, str]] = {}
        """By channel, the second of the last sample, and its shape."""

    def publish(
        self, number: int, channel: str, took: Iterable[str] = (), rejected: Iterable[str] = (), **letter: Any
    ) -> None:
        """A message that these receivers took, and those rejected."""
        self.published.append({"log_id": number, "channel": channel})
        self.took(number, *took, ms=letter.get("ms", 0))
        for name in rejected:
            self.rejected(number, name, channel=channel, **letter)

    def sample(self, number: int, channel: str, body: str, ms: int, sender: str = "") -> None:
        """This message was taken by a receiver: the server notes its shape, as it would."""
        second, shape = self._sampled.get(channel, (-1, ""))
        if ms // 1000 > second:
            found = shape_of(body.encode())
            self._sampled[channel] = ms // 1000, found
            if found != shape:
                self.samples.append(
                    {
                        "log_id": number,
                        "channel": channel,
                        "shape": found,
                        "sender": sender,
                        "happened": time(ms),
                        "ms": ms,
                    }
                )

    def took(self, number: int, *names: str, ms: int = 0) -> None:
        """These receivers acknowledged a message."""
        self.ended += [{"log_id": number, "receiver": name, "reason": "settled", "ms": ms} for name in names]

    def rejected(self, number: int, name: str, **letter: Any) -> None:
        """This receiver rejected a message for good."""
        letter = {"code": CODE, "reason": "bad", "body": USUAL, "ms": number, **letter}
        self.ended.append(
            {"log_id": number, "receiver": name, "reason": "dead", "code": letter["code"], "ms": letter["ms"]}
        )
        shape = shape_of(letter["body"].encode())
        self.letters.append({"message_id": str(number), "receiver": name, "shape": shape, **letter})

    def tables(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """All tables of silver."""
        return silver(
            spark,
            letters=self.letters,
            fact_ended=self.ended,
            fact_published=self.published,
            fact_addressed=self.addressed,
            fact_redriven=self.redriven,
            event_failed=self.failed,
            event_shape=self.samples,
        )

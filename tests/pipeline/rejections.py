"""Rejections for tests: facts, dead letters and events of messages that some receivers took, and others rejected."""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.frames import silver

USUAL = '{"data":{"n":7}}'
CODE = "user.update.error"


class Scene:
    """Facts, dead letters and events of messages, each on a channel and for some receivers."""

    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        self.redriven: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []

    def publish(
        self, number: int, channel: str, took: Iterable[str] = (), rejected: Iterable[str] = (), **letter: Any
    ) -> None:
        """A message that these receivers took, and those rejected."""
        self.published.append({"log_id": number, "channel": channel})
        self.took(number, *took, ms=letter.get("ms", 0))
        for name in rejected:
            self.rejected(number, name, channel=channel, **letter)

    def took(self, number: int, *names: str, ms: int = 0) -> None:
        """These receivers acknowledged a message."""
        self.ended += [{"log_id": number, "receiver": name, "reason": "settled", "ms": ms} for name in names]

    def rejected(self, number: int, name: str, **letter: Any) -> None:
        """This receiver rejected a message for good."""
        letter = {"code": CODE, "reason": "bad", "body": USUAL, "ms": number, **letter}
        self.ended.append(
            {"log_id": number, "receiver": name, "reason": "dead", "code": letter["code"], "ms": letter["ms"]}
        )
        self.letters.append({"message_id": str(number), "receiver": name, **letter})

    def tables(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """All tables of silver."""
        return silver(
            spark,
            letters=self.letters,
            fact_ended=self.ended,
            fact_published=self.published,
            fact_redriven=self.redriven,
            event_failed=self.failed,
        )

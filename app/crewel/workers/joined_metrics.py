"""The figures of all workers in one answer to `/metrics`: each sample gets the label `worker`.

They are not added up: if a worker is replaced, its counters begin again, and Prometheus sees that in a series of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


def joined(by_worker: Mapping[str, bytes]) -> bytes:
    """The text for Prometheus made of those of several workers."""
    families: dict[str, Metric] = {}
    for worker, text in sorted(by_worker.items()):
        for family in text_string_to_metric_families(text.decode()):
            labelled = [each._replace(labels={"worker": worker, **each.labels}) for each in family.samples]
            families.setdefault(family.name, _empty(family)).samples.extend(labelled)
    return generate_latest(_Ready(families.values()))


def _empty(family: Metric) -> Metric:
    return Metric(family.name, family.documentation, family.type)


class _Ready(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """The families as they are."""
        yield from self._families

"""Several nodes, zombies and heirs in random interleavings, over the real engine and the real scripts; each rule of a take-over
that is taken out is noticed.

`make test` does a few runs, `make faults` 300, and CREWEL_RUNS tells any number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import redis

from crewel.delivery.records import Logged, LogId, SessionRecord
from crewel.storage.nodes import Slice
from crewel.storage.script_step import Step, scripts
from tests.delivery.ledger import Broken
from tests.storage.node_interleaving import NodeServer, NodesRun, NodesStore
from tests.store_process import StoreProcess

RUNS = int(os.environ.get("CREWEL_RUNS") or (300 if os.environ.get("FAULTS") == "full" else 16))
STEPS = 500
PORTION = 4
MOST_SEEDS = 300

portions = pytest.mark.parametrize(
    "seeds", [range(each, min(each + PORTION, RUNS)) for each in range(0, RUNS, PORTION)]
)


@pytest.fixture
def client(server: StoreProcess) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@portions
def test_nothing_is_lost_and_nothing_crossed_between_nodes(client: redis.Redis, seeds: range) -> None:
    inherited = 0
    for seed in seeds:
        run = NodesRun(seed, client)
        try:
            run.run(STEPS)
        except Exception as error:
            raise Broken(f"seed {seed}: {error}") from error
        inherited += run.inherited
    assert inherited


# Each rule taken out


class ReadsNothing(NodeServer):
    """The heir does not read what lies between the cursors."""

    def bring_in(self, records: Iterable[SessionRecord], read: Callable[[LogId], Iterable[Logged]]) -> None:
        super().bring_in(records, lambda after: [])


class ForgetsAtOnce(NodesStore):
    """The dead node's record goes before the heir has committed."""

    def inherit(self, token: str, count: int) -> Slice:
        found = super().inherit(token, count)
        self.release(token, found.finished)
        return found


class Altered(NodesStore):
    """One script says something else."""

    script, rule, instead = "inherit", "", ""

    def do(self, step: Step[Any]) -> Any:
        if step.script != self.script:
            return super().do(step)
        text = scripts()[step.script].text.decode()
        assert self.rule in text
        altered = text.replace(self.rule, self.instead)
        return step.result(self._client.eval(altered, len(step.keys), *step.keys, *step.arguments))


class FencesNobody(Altered):
    """The dead node's record stays where it is: a zombie's steps count."""

    rule, instead = "call('RENAME', record,", "call('COPY', record,"


class BeginsAtTheHeir(Altered):
    """The sessions begin at the heir's cursor instead of the dead node's."""

    rule, instead = "adopt(name, other, cursor or '0'", "adopt(name, other, call('HGET', node, 'cursor')"


class TrimsWithoutTheDead(Altered):
    """What a dead node's sessions need of the log is not kept."""

    script = "trim"
    rule, instead = "low = tonumber(low or 0)", "low = tonumber(low or lowest)"

    def do(self, step: Step[Any]) -> Any:
        if step.script == "trim":
            for key in list(self._client.scan_iter(f"{self.keys.base}left:*")):
                self._client.hdel(key, "low")
        return super().do(step)


@pytest.mark.parametrize(
    "changed",
    [
        {"server": ReadsNothing},
        {"store": ForgetsAtOnce},
        {"store": FencesNobody},
        {"store": BeginsAtTheHeir},
        {"store": TrimsWithoutTheDead},
    ],
    ids=lambda changed: next(iter(changed.values())).__name__,
)
def test_a_rule_that_is_taken_out_is_noticed(client: redis.Redis, changed: dict[str, type]) -> None:
    with pytest.raises(Broken):
        _run_all(client, changed)


def _run_all(client: redis.Redis, changed: dict[str, type]) -> None:
    for seed in range(MOST_SEEDS):
        NodesRun(seed, client, **changed).run(STEPS)

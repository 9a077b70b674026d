"""What Prometheus makes of the alert rules while real faults happen: `/metrics` is read in each step of a story, and promtool
evaluates the rules over what was read, as if each step had lasted some minutes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.functional.wire import Address, Connection
from tests.house.source import ROOT

RULES = ROOT / "docs" / "how-to" / "monitoring" / "alerts.yml"
HERON = "heron:8080"
SOON = 11
"""Minutes after which a fault has been there long enough for each rule but those that wait for a quarter of an hour."""
LATER = 20
"""After these, what has happened before is out of the window of most rules."""

Key = tuple[str, tuple[tuple[str, str], ...]]


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def said_by(server: Address) -> str:
    """What the server says of itself."""
    with Connection(server) as connection:
        return connection.get("/metrics", [("Connection", "close")]).body.decode()


class Alert(NamedTuple):
    """One alert that fires."""

    name: str
    summary: str
    labels: Mapping[str, str] = {}
    instance: str = HERON

    def expected(self) -> dict[str, Any]:
        rule = rules()[self.name]
        action = rule["annotations"]["action"].replace("{{ $labels.instance }}", self.instance)
        labels = {**rule["labels"], **self.labels, "instance": self.instance}
        if self.name == "CrewelIsDown":
            labels["job"] = "crewel"
        return {"exp_labels": labels, "exp_annotations": {"summary": self.summary, "action": action}}


class _Step(NamedTuple):
    scrapes: list[dict[Key, float]]
    minutes: int
    fires: list[Alert]
    stands_still: bool


class Story:
    """Steps, and what fires at the end of each. What was read last in a step holds until its end."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._named = set(re.findall(r"\bcrewel_\w+", RULES.read_text("utf-8")))

    def step(
        self,
        minutes: int,
        *scrapes: str | Mapping[str, str | None] | None,
        fires: Sequence[Alert] = (),
        stands_still: bool = False,
    ) -> None:
        """Servers said this, by instance, one text after the other, evenly over these minutes; None: a server does not answer.
        At the end these alerts fire, and no others. `stands_still`: the test has seen that nothing is committed meanwhile."""
        read = [self._read({HERON: each} if each is None or isinstance(each, str) else each) for each in scrapes]
        self._steps.append(_Step(read, minutes, list(fires), stands_still))

    def _read(self, texts: Mapping[str, str | None]) -> dict[Key, float]:
        found: dict[Key, float] = {}
        now = time.time()
        for instance, text in texts.items():
            found["up", (("instance", instance), ("job", "crewel"))] = float(text is not None)
            for family in text_string_to_metric_families(text or ""):
                for sample in family.samples:
                    if sample.name in self._named:
                        is_time = sample.name.endswith("_timestamp_seconds")
                        labels = tuple(sorted({**sample.labels, "instance": instance}.items()))
                        found[sample.name, labels] = sample.value - now * is_time
        return found

    def check(self, directory: Path) -> None:
        """Let promtool say whether it comes so."""
        minutes = sum(each.minutes for each in self._steps)
        keys = dict.fromkeys(key for step in self._steps for scrape in step.scrapes for key in scrape)
        series = [
            {
                "series": _series(key),
                "values": " ".join("_" if each is None else f"{each:.3f}" for each in self._values(key)),
            }
            for key in keys
        ]
        tests, end = [], 0
        for step in self._steps:
            end += step.minutes
            for name in rules():
                fires = [each.expected() for each in step.fires if each.name == name]
                tests.append({"eval_time": f"{end - 1}m", "alertname": name, "exp_alerts": fires})
        content = {
            "rule_files": [str(RULES)],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": tests}],
        }
        assert all(len(each["values"].split()) == minutes for each in series)
        file = directory / "story.json"  # which is YAML
        file.write_text(json.dumps(content))
        done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _values(self, key: Key) -> list[float | None]:
        """A value for each minute; None where the server has not said it."""
        values: list[float | None] = []
        for step in self._steps:
            said = [scrape.get(key) for scrape in step.scrapes]
            start = len(values)
            values += [_between(said, minute / (step.minutes - 1)) for minute in range(step.minutes)]
            if key[0].endswith("_timestamp_seconds"):
                values[start:] = _times(key[0], said[-1], range(start, len(values)), stands_still=step.stands_still)
        return values


def _between(said: Sequence[float | None], share: float) -> float | None:
    """What was said at this part of the step, or what lies in between."""
    place = share * (len(said) - 1)
    number = min(int(place), len(said) - 1)
    before, after = said[number], said[min(number + 1, len(said) - 1)]
    if before is None or after is None:
        return before
    return before + (after - before) * min(place - number, 1)


def _times(name: str, said: float | None, minutes: range, *, stands_still: bool) -> list[float | None]:
    """A time that was said so long before or after it was read, in seconds of the story. That of the last commit follows the
    clock, as commits do."""
    if said is None:
        return [None] * len(minutes)
    if name == "crewel_last_commit_timestamp_seconds":
        return [60.0 * (minutes[0] if stands_still else minute) for minute in minutes]
    return [60 * minutes[0] + said for _ in minutes]


def _series(key: Key) -> str:
    name, labels = key
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"

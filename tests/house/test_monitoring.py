"""That the alert rules and the dashboard of docs/how-to/monitoring.md name what the server exports."""

import json
import re

import pytest
import yaml

from crewel import metrics
from tests.house.source import ROOT

FILES = ROOT / "docs" / "how-to" / "monitoring"
NAMES = {row.name for row in metrics.DECLARED}
LABELS = {row.name: row.label for row in metrics.DECLARED if row.label}


def rules() -> list[dict[str, object]]:
    (group,) = yaml.safe_load((FILES / "alerts.yml").read_text("utf-8"))["groups"]
    found: list[dict[str, object]] = group["rules"]
    return found


def dashboard_queries() -> list[str]:
    panels = json.loads((FILES / "dashboard.json").read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def queries() -> list[str]:
    return [*(str(rule["expr"]) for rule in rules()), *dashboard_queries()]


@pytest.mark.parametrize("query", queries())
def test_a_query_names_metrics_and_labels_of_the_server(query: str) -> None:
    named = set(re.findall(r"\bcrewel_\w+", query))
    assert named <= NAMES, named - NAMES
    known = {LABELS.get(name) for name in named} | {"instance"}
    asked = [label.strip() for by in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in by.split(",")]
    assert {*asked, *re.findall(r"(\w+)[!=]~?\"", query)} - {"job"} <= known, query


def test_each_rule_is_fired_by_a_fault_and_the_dashboard_shows_what_it_is_made_of() -> None:
    tests = "".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    fired = set(re.findall(r'Alert\(\s*"(\w+)"', tests))
    assert {str(rule["alert"]) for rule in rules()} - fired == set()
    shown = "".join(dashboard_queries())
    hidden = {name for rule in rules() for name in re.findall(r"\bcrewel_\w+", str(rule["expr"])) if name not in shown}
    assert hidden == {"crewel_task_restarts_total", "crewel_descriptor_shortages_total"}, (
        "these are looked for in the log"
    )


def test_each_alert_says_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket", "info"}  # type: ignore[index]
        assert set(rule["annotations"]) == {"summary", "action"}  # type: ignore[call-overload]


def test_the_rest_of_the_dashboard_is_in_place() -> None:
    dashboard = json.loads((FILES / "dashboard.json").read_text("utf-8"))
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 5
    assert not [query for query in dashboard_queries() if "$instance" not in query]

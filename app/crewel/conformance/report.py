"""The report for programs (JSON) and for people (one HTML page that loads nothing). Pure."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby
from string import Template
from typing import Any, Final

from crewel.conformance.check_table import SECTIONS, SPECIFICATION, Check, Level, Outcome
from crewel.conformance.runner import Report, Result


def link(check: Check) -> str:
    """The place in the specification."""
    return f"{SPECIFICATION}#{SECTIONS[check.section]}"


def as_json(report: Report) -> dict[str, Any]:
    """`{"url", "offered", "summary": {level: {outcome: count}}, "checks": [{"id", "level", "section", "link", "text", "how",
    "results": [{"transport", "outcome", "detail", "ms"}]}]}`."""
    return {
        "url": report.url,
        "offered": report.offered,
        "summary": {
            level.value: {outcome.value: report.count(level, outcome) for outcome in Outcome} for level in Level
        },
        "checks": [_row(check, results) for check, results in by_check(report)],
    }


def by_check(report: Report) -> list[tuple[Check, list[Result]]]:
    """The results of each check, on all its transports."""
    return [(results[0].check, results) for results in _groups(report)]


def _groups(report: Report) -> list[list[Result]]:
    return [list(group) for _, group in groupby(report.results, key=lambda each: each.check.id)]


def _row(check: Check, results: list[Result]) -> dict[str, Any]:
    return {
        "id": check.id,
        "level": check.level.value,
        "section": check.section,
        "link": link(check),
        "text": check.text,
        "how": check.how,
        "results": [
            {
                "transport": each.transport,
                "outcome": each.outcome.value,
                "detail": each.detail,
                "ms": round(each.seconds * 1000),
            }
            for each in results
        ],
    }


_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Bayeux conformance of $url</title>
<style>
  body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1d2129; }
  table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
  th, td { text-align: left; vertical-align: top; padding: .45rem .6rem; border-bottom: 1px solid #d8dce3; }
  a { color: #0b57d0; }
  .summary { width: auto; }
  .summary td { text-align: right; }
  .passed { color: #176c36; } .failed { color: #b3261e; font-weight: 600; } .not-offered, .untested { color: #75510a; }
  code, .id { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere; }
  .how, .detail { color: #565d6b; font-size: .92em; }
  .detail { overflow-wrap: anywhere; }
  @media (max-width: 44rem) {
    body { margin: 1rem auto; }
    .summary th, .summary td { padding: .3rem .35rem; font-size: .9em; }
    .checks thead { display: none; }
    .checks tr { display: block; padding: .6rem 0; border-bottom: 1px solid #d8dce3; }
    .checks td { display: block; padding: .1rem 0; border: 0; }
    .checks .id, .checks .level { display: inline-block; margin-right: .6rem; }
  }
  @media (prefers-color-scheme: dark) {
    body { background: #16181d; color: #e4e7ec; } th, td, .checks tr { border-color: #383d47; } a { color: #8ab4f8; }
    .passed { color: #6fd08c; } .failed { color: #ff8a80; } .not-offered, .untested { color: #e3b75c; }
    .how, .detail { color: #a5acb9; }
  }
</style>
<h1>Bayeux conformance</h1>
<p><code>$url</code> offers $offered. Statements are those of the <a href="$specification#_bayeux">Bayeux 1.0 specification</a>:
MUST and SHOULD as it has them. CLIENTS is not in the specification: widespread clients depend on it.</p>
<table class="summary"><thead><tr><th>level$outcomes</thead><tbody>$summary</tbody></table>
$failures
<h2>All checks</h2>
<table class="checks"><thead><tr><th>check<th>level<th>statement<th>result</thead><tbody>$rows</tbody></table>
</html>
""")


def as_html(report: Report) -> str:
    """The page: how many results of each kind, what failed, and all checks."""
    summary = "".join(
        f"<tr><th>{level.value}" + "".join(f"<td>{report.count(level, outcome)}" for outcome in Outcome) + "</tr>"
        for level in Level
    )
    return _PAGE.substitute(
        url=escape(report.url),
        offered=escape(", ".join(report.offered) or "no transport"),
        specification=SPECIFICATION,
        outcomes="".join(f"<th>{outcome.value}" for outcome in Outcome),
        summary=summary,
        failures=_html_failures(report),
        rows="".join(_html_row(check, results) for check, results in by_check(report)),
    )


def _html_failures(report: Report) -> str:
    failed = report.failed(*Level)
    if not failed:
        return "<p>No check failed.</p>"
    items = "".join(
        f'<li><a class="id" href="#{each.check.id}">{each.check.id}</a> {each.check.level.value}, {escape(each.transport)}:'
        f' {_marked(each.check.text)} <div class="detail">{escape(each.detail)}</div>'
        for each in failed
    )
    return f"<h2>Failed</h2><ul>{items}</ul>"


def _marked(text: str) -> str:
    """The text with what is in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _html_row(check: Check, results: list[Result]) -> str:
    outcomes = "".join(
        f'<div><span class="{each.outcome.value.replace(" ", "-")}">{each.outcome.value}</span> {escape(each.transport)}'
        + (f'<div class="detail">{escape(each.detail)}</div>' if each.detail else "")
        + "</div>"
        for each in results
    )
    return (
        f'<tr id="{check.id}"><td class="id">{check.id}<td class="level">{check.level.value}'
        f'<td>{_marked(check.text)} <a href="{link(check)}">{escape(check.section)}</a>'
        f'<div class="how">{_marked(check.how)}</div><td>{outcomes}</tr>'
    )

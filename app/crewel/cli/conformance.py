"""`crewel conformance`: whether a Bayeux server does what the specification says."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crewel.cli import bayeux_client, output
from crewel.outgoing_proxy import without_password
from crewel.standard_output import closed_pipe_ends

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crewel.conformance.check_table import Check
    from crewel.conformance.runner import Report

_PIPED_COLUMNS = 100  # statements are sentences: they are read, and no program takes them apart
_STYLES = {"passed": "green", "failed": "bold red", "not offered": "yellow", "untested": "yellow"}


def conformance(
    url: Annotated[str, typer.Argument(help="The server: http://localhost:8080/cometd.")] = "",
    transport: Annotated[
        list[str] | None,
        typer.Option(help="Test this transport only; may be repeated. Default: all that the server offers."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run the check with this id; may be repeated.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="Send `Name: value` with each request; may be repeated.")
    ] = None,
    proxy: bayeux_client.Proxy = None,
    root: Annotated[str, typer.Option(help="Publish below this channel.")] = "/conformance",
    limit: Annotated[float, typer.Option(help="Seconds to wait for an immediate reply.", min=0.1)] = 5.0,
    expiry: Annotated[
        float | None, typer.Option(help="Check that the server ends a silent session within this many seconds.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a readable report to this file, as HTML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Also exit with 1 if a SHOULD is not met.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks and run none.")] = False,
) -> None:
    """Test whether a Bayeux server does what the specification says. Exits with 1 if a MUST is not met.

    It publishes and subscribes below --root, and leaves nothing behind. Use it only on your own servers.
    """
    from crewel.conformance import runner
    from crewel.conformance.check_table import CHECKS, Level, Outcome
    from crewel.conformance.verdicts import TRANSPORTS
    from crewel.conformance.wires import Site
    from crewel.errors import SettingsError

    if list_checks:
        _print_checks(CHECKS.values())
        return
    shown = without_password(url)
    _require(url.startswith(("http://", "https://")), f"URL: expected http://… or https://…, got {shown!r}")
    for name in only or ():
        _require(name in CHECKS, f"--only: there is no check {name!r}; --list shows all")
    for name in transport or ():
        _require(name in TRANSPORTS, f"--transport: expected {', '.join(TRANSPORTS)}, got {name!r}")
    site = Site(url.rstrip("/"), dict(map(_header, header or ())), limit, bayeux_client.proxy_on_the_way(url, proxy))
    try:
        tried = transport or TRANSPORTS
        work = runner.run(site, transports=tried, only=only or (), root=root, expiry_s=expiry)
        report = bayeux_client.finished(work)
    except runner.Unreachable as error:
        raise SettingsError(str(error)) from None
    was_tested = report.is_complete and any(each.outcome is Outcome.PASSED for each in report.results)
    status = int(not was_tested or bool(report.failed(Level.MUST, *([Level.SHOULD] if strict else []))))
    try:
        with closed_pipe_ends(status):
            _print(report, as_json=as_json)
    finally:  # neither a file that cannot be written nor a text that nothing reads must cost the run
        if html is not None:
            _write(report, html)
    raise typer.Exit(status)


def _print_checks(checks: "Iterable[Check]") -> None:
    rows = [(each.id, each.level.value, each.section, each.text) for each in checks]
    output.print_table(("check", "level", "section", "statement"), rows, _PIPED_COLUMNS)


def _require(condition: bool, text: str) -> None:
    from crewel.errors import SettingsError

    if not condition:
        raise SettingsError(text)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    _require(bool(colon and name.strip()), f"--header: expected `Name: value`, got {text!r}")
    return name.strip(), value.strip()


def _write(report: "Report", html: Path) -> None:
    from crewel.conformance.report import as_html

    with output.file_errors(html):
        html.write_text(as_html(report), "utf-8")


def _print(report: "Report", *, as_json: bool) -> None:
    if as_json:
        from crewel.conformance.report import as_json as report_json

        print(json.dumps(report_json(report), indent=2, ensure_ascii=False), flush=True)
        return
    _print_results(report)


def _print_results(report: "Report") -> None:
    from rich.text import Text

    from crewel.conformance.check_table import Level, Outcome

    rows = [
        (
            each.check.id,
            each.check.level.value,
            each.transport,
            Text(each.outcome.value, style=_STYLES[each.outcome.value]),
            f"{each.check.text} {each.detail[:1].upper()}{each.detail[1:]}",
        )
        for each in report.results
        if each.outcome is not Outcome.PASSED and (each.transport in report.offered or each.outcome is Outcome.FAILED)
    ]
    print(f"{report.url} offers {', '.join(report.offered)}\n")
    if rows:
        output.print_table(("check", "level", "transport", "result", "statement"), rows, _PIPED_COLUMNS)
    totals = [(level.value, *(report.count(level, outcome) for outcome in Outcome)) for level in Level]
    output.print_table(("level", *(outcome.value for outcome in Outcome)), totals, _PIPED_COLUMNS)

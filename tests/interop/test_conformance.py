"""What the conformance test finds in the servers of other projects: the differences that are known of them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator

import pytest

from crewel.conformance.check_table import Outcome
from crewel.conformance.runner import run
from crewel.conformance.verdicts import LONG_POLLING
from crewel.conformance.wires import Site
from tests.interop.peers import HERE

FOUND = (Outcome.FAILED, Outcome.NOT_OFFERED)
LIMIT_S = 8.0  # what fails waits for it; a loaded machine must have answered by then

FAYE = {
    "service-not-distributed": "a delivery on /service/",
    "handshake-alone": "deliveries of ['after', 'before', 'marker']",
    "browser-cookie": "no cookie",
    "multiple-clients": "a reply to /meta/connect",
    "prefer-response": "the message and the reply",
    "form-several": "replies to ['1', '2'], got ['1']",
    "unconnected-refused": "'successful': True",
    "service-subscribe": "Forbidden channel",
    "bare-handshake": "402:supportedConnectionTypes:Missing required parameter",
    "unconnected-handshake-advice": "401:conformancenosuchclient:Unknown client",
    "first-connect": "a reply to /meta/connect",
    "batched-connect": "a reply to /meta/connect",
    "no-publisher-id": "'id': 'publisher1'",
    "messages-first": "got ['/meta/connect', ",
}
COMETD_NODEJS = {
    "handshake-none-common": "'successful': True",
    "handshake-alone": "deliveries of ['before', 'marker']",
    "subscribe-fields": "'402::session_unknown'",
    "unsubscribe-fields": "'402::session_unknown'",
    "delivery-has-data": "`data` in each delivered message",
    "callback-polling-offered": "['long-polling']",
    "form-one": "got 400",
    "form-array": "got 400",
    "form-several": "got 400",
    "error-arguments": "403::subscribe_failed",
    "first-connect": "a reply to /meta/connect",
    "one-copy": "[1, 1, 1, 'end', 'end', 'end']",
    "forged-fields": "'advice': {'reconnect': 'none'}",
    "bare-object": "HTTP 400",
    "unknown-meta": "HTTP 500",
    "invalid-channel": "HTTP 400",
}
OBEYED = [
    "meta-id",
    "meta-successful",
    "delivery",
    "wildcard-one",
    "wildcard-many",
    "client-id-leak",
    "disconnect-ends",
]

Serve = Callable[[str], str]


@pytest.fixture
def serve(installed_clients: None) -> Iterator[Serve]:
    """Start a server of another project; returns its URL."""
    running = []

    def started(name: str) -> str:
        process = subprocess.Popen(["node", str(HERE / "servers" / name)], stdout=subprocess.PIPE, text=True, cwd=HERE)
        running.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    yield started
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("server", "known"), [("faye.mjs", FAYE), ("cometd.mjs", COMETD_NODEJS)])
def test_known_differences_are_found_and_nothing_else_is_made_up(
    server: str, known: dict[str, str], serve: Serve
) -> None:
    site = Site(serve(server), limit_s=LIMIT_S)
    report = asyncio.run(run(site, transports=[LONG_POLLING], only=[*known, *OBEYED]))
    details = {each.check.id: each.detail for each in report.results if each.outcome in FOUND}
    for name, detail in known.items():
        assert detail in details.get(name, "passed"), name
    assert {each.check.id for each in report.results if each.outcome is Outcome.PASSED} >= set(OBEYED)

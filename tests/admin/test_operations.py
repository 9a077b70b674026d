"""The table of operations: each row is a route, a command of `crewel`, and, where xmlBlaster has one, a `__cmd`."""

from __future__ import annotations

import pytest
from typer.main import get_command

from crewel.admin.commands import COMMANDS
from crewel.admin.operation import OPERATIONS, Operation
from crewel.admin.rest import ROUTES
from crewel.cli.main import app
from tests.admin.desk import Desk, Receiver, publish
from tests.functional.wire import until
from tests.server_process import Server


def label(operation: Operation) -> str:
    return f"{operation.verb} {operation.level}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=label)
def test_operation_has_its_faces(operation: Operation) -> None:
    [route] = [each for each in ROUTES if (each.method, each.path) == (operation.method, operation.route)]
    assert {each.name for each in (*route.query, *route.body)} == {each.name for each in operation.asked}
    group = get_command(app).commands[f"{operation.level}s"]  # type: ignore[attr-defined]
    options = {option for each in group.commands[operation.verb].params for option in each.opts}
    assert {f"--{each.name}" for each in operation.asked} <= options
    commands = [each.name for each in COMMANDS if each.level is operation.level]
    assert not operation.command or commands.count(operation.command) == 1


def test_no_two_operations_share_a_route() -> None:
    routes = [(each.method, each.route) for each in OPERATIONS]
    assert len(set(routes)) == len(routes)


def test_queue_of_a_session_is_cleared(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    publish(server, channel, 3)
    cleared = desk.post(f"/sessions/{subject}/1/clear")
    assert (cleared["cleared"], cleared["waiting"]) == (3, 0)
    assert receiver.take() == []


def test_refresh_moves_the_end_of_a_session(desk: Desk, receiver: Receiver, subject: str) -> None:
    receiver.say()
    before = desk.get(f"/sessions/{subject}/1")["ends"]["at"]
    until(lambda: desk.post(f"/sessions/{subject}/1/refresh")["ends"]["at"] > before)


def test_blocked_subject_is_unblocked(desk: Desk, receiver: Receiver, subject: str) -> None:
    assert receiver.id
    assert desk.post(f"/subjects/{subject}/block") == {"name": f"client/{subject}", "killed": 1}
    shown = desk.get(f"/subjects/{subject}")
    assert (shown["blocked"], shown["sessions"]) == (True, [])
    assert desk.post(f"/subjects/{subject}/unblock") == {"name": f"client/{subject}"}
    assert desk.ask("GET", f"/subjects/{subject}").status == 404


def test_subject_is_blocked_before_its_first_login(desk: Desk, server: Server, subject: str) -> None:
    assert desk.post(f"/subjects/{subject}/block") == {"name": f"client/{subject}", "killed": 0}
    shown = desk.get(f"/subjects/{subject}")
    assert (shown["blocked"], shown["sessions"], shown["queued"]) == (True, [], 0)
    refused = Receiver(server).shake(name=f"{subject}/1")
    assert refused["ext"]["session"]["errorCode"] == "communication.noConnection.serverDeny"
    assert desk.post(f"/subjects/{subject}/unblock") == {"name": f"client/{subject}"}
    Receiver(server).be(f"{subject}/1")


@pytest.mark.parametrize("verb", ["kill", "unblock"])
def test_other_operations_need_a_subject_that_is_there(desk: Desk, subject: str, verb: str) -> None:
    refused = desk.ask("POST", f"/subjects/{subject}/{verb}")
    assert (refused.status, refused.json()["message"]) == (404, f"there is no subject {subject} here")


@pytest.mark.parametrize("name", ["a%20b", "%2E%2E", "a%26b", "x" * 256])
def test_what_no_client_can_be_called_is_not_blocked(desk: Desk, name: str) -> None:
    refused = desk.ask("POST", f"/subjects/_/block?subject={name}")
    assert refused.status == 404
    assert "there can be none: a subject is 1 to 255 of A-Z" in refused.json()["message"]

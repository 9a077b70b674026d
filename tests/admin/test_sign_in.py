"""Who may do what at `/admin/api`: the role of each route and command, and pages that sign in by a cookie."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest

from crewel.admin.commands import COMMANDS
from crewel.admin.rest import ROUTES
from crewel.admin.route import Route
from crewel.admin.sign_in_resource import cookie_name, operator_of
from crewel.security.grants import Grants, Role
from crewel.security.sign_in import code
from crewel.transports.forwarded import Client
from tests.admin.desk import SETS, TOKEN, Desk, Receiver, audit
from tests.functional.wire import Response
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

pytestmark = pytest.mark.server

CLOSED = [route for route in ROUTES if not route.is_public]
OPERATES = {
    ("POST", "/dead-letters/redrive"),
    ("POST", "/dead-letters/restore"),
    ("POST", "/dead-letters/{id}/edit"),
    ("POST", "/publish/{channel}"),
    ("POST", "/subjects/{subject}/unblock"),
    ("POST", "/jobs"),
    *(("POST", f"/jobs/{{job}}/{verb}") for verb in ("pause", "resume", "stop")),
    *(
        ("POST", f"/sessions/{{subject}}/{{number}}/{verb}")
        for verb in ("activate", "hold", "skip", "drain", "retry", "ping", "refresh")
    ),
}
VIEWS_BY_POST = {("POST", "/commands"), ("POST", "/sign-out"), ("POST", "/feed")}
NOT_AUTHORIZED = "user.security.authorization.notAuthorized"


def role_expected(route: Route) -> Role:
    row = (route.method, route.path)
    if route.method == "GET" or row in VIEWS_BY_POST:
        return Role.VIEW
    return Role.OPERATE if row in OPERATES else Role.DESTROY


def filled(path: str) -> str:
    """The path of nothing that exists."""
    path = path.replace("{subject}", "nobody").replace("{number}", "1").replace("{id}", "1795179106957-0")
    return path.replace("{channel}", "no/such/topic").replace("{message}", "1").replace("{job}", "1-1")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tokens."""
    directory = tmp_path_factory.mktemp("guarded")
    sets = (*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(directory)}")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
    yield server
    server.end_well()


def desk_of(server: Server, role: str | bool) -> Desk:
    """A desk with a token of this role."""
    return Desk(server, signed(operator=role, publish=["/**"]))


def cookie_of(response: Response) -> SimpleCookie:
    """What the response sets."""
    return SimpleCookie(response.header("Set-Cookie") or "")


def page(server: Server, **given: str) -> tuple[Desk, dict[str, str]]:
    """A desk without a token, and the header with the cookie by which it is signed in."""
    desk = Desk(server, None)
    response = desk.ask("POST", "/sign-in", given)
    assert response.status == 200, response.body
    [(name, morsel)] = cookie_of(response).items()
    return desk, {"Cookie": f"{name}={morsel.value}"}


# Roles


@pytest.mark.parametrize("route", CLOSED, ids=lambda route: f"{route.method} {route.path}")
def test_role_of_a_route(route: Route) -> None:
    assert route.needs is role_expected(route)


@pytest.mark.parametrize("role", [Role.VIEW, Role.OPERATE])
def test_no_route_does_what_the_role_does_not_allow(guarded: Server, role: Role) -> None:
    desk = desk_of(guarded, role.word)
    for route in CLOSED:
        if route.path.endswith("/sign-out"):
            continue
        response = desk.ask(route.method, filled(route.path), None)
        refused = response.status == 403
        assert refused is (role < route.needs), (route.method, route.path, response.status, response.body)
        if refused:
            told = response.json()
            assert told["errorCode"] == NOT_AUTHORIZED
            assert (
                told["message"] == f"this needs the role {route.needs.word}, and the operator has the role {role.word}"
            )


def test_commands_need_the_role_of_what_they_do(guarded: Server) -> None:
    joe = Receiver(guarded).be("joe/1", token=signed(publish=["/**"]))
    view, operate, destroy = (desk_of(guarded, role) for role in ("view", "operate", True))

    def status(desk: Desk, command: str) -> int:
        return desk.ask("POST", "/commands", {"command": command}).status

    reads, writes, ends = (
        f"__cmd:client/joe/1/?{name}" for name in ("dispatcherActive", "dispatcherActive=false", "killSession")
    )
    assert [status(view, each) for each in (reads, writes, ends)] == [200, 403, 403]
    assert [status(operate, each) for each in (reads, writes, ends)] == [200, 200, 403]
    assert joe.connect(advice={"timeout": 0})[-1]["successful"] is True
    assert status(destroy, ends) == 200
    needs = {(row.level.value, row.name): row.needs(writes=False) for row in COMMANDS}
    assert needs["session", "killSession"] is needs["topic", "unSubscribeAll"] is needs["node", "gc"] is Role.DESTROY
    assert needs["session", "drainCallbackQueue"] is Role.OPERATE
    assert needs["subject", "blockClientLogin"] is Role.VIEW


def test_session_of_a_viewer_reads_by_remote_call_and_changes_nothing(guarded: Server) -> None:
    viewer = Receiver(guarded).be("joe/2", token=signed(operator="view"))

    def call(command: str) -> Any:
        replies = viewer.publish("/service/__cmd", {"command": f"__cmd:{command}"})
        told = [each for each in viewer.connect(advice={"timeout": 0}, ext={"ack": 0}) + replies if "data" in each]
        return next(each["data"] for each in told if each["id"] == replies[-1]["id"])

    assert call("client/joe/2/?id")["result"] == "/node/heron/client/joe/2"
    assert call("client/joe/2/?killSession")["errorCode"] == NOT_AUTHORIZED
    assert call("client/joe/2/?dispatcherActive=false")["errorCode"] == NOT_AUTHORIZED


# Signing in


def test_page_signs_in_with_a_token_and_out(guarded: Server) -> None:
    desk, signed_in = page(guarded, token=TOKEN)
    me = desk.ask("GET", "/me", None, **signed_in).json()
    assert (me["who"], me["role"], me["node"]) == ("admin", "destroy", "heron")
    assert 40_000 < me["expires"] / 1000 - time.time() <= 43_200
    assert desk.ask("POST", "/sessions/nobody/1/kill", None, **signed_in).status == 404
    out = desk.ask("POST", "/sign-out", None, **signed_in)
    assert (out.status, next(iter(cookie_of(out).values()))["max-age"]) == (200, "0")
    assert desk.ask("GET", "/me", None, **signed_in).status == 401
    assert TOKEN not in guarded.stderr
    told = [line for line in audit(guarded) if "operator: sign " in line]
    assert len(told) >= 2


def test_cookie_is_out_of_reach_of_scripts_and_other_sites(guarded: Server) -> None:
    response = Desk(guarded, None).ask("POST", "/sign-in", {"token": TOKEN})
    [(name, morsel)] = cookie_of(response).items()
    assert name == f"crewel_operator_{guarded.port}"
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/admin")
    assert TOKEN not in morsel.value


@pytest.mark.parametrize("host", ["localhost:99999", "a:b", "[::1", "localhost:", ""])
def test_host_without_a_port_has_the_cookie_of_the_usual_one(host: str) -> None:
    names = [cookie_name(Client("10.0.0.1", scheme, host)) for scheme in ("http", "https")]
    assert names == ["crewel_operator_80", "crewel_operator_443"]


def test_host_that_is_none_is_no_error_of_the_server(guarded: Server) -> None:
    assert Desk(guarded, None).ask("GET", "/me", Host="localhost:99999").status == 401


def test_page_has_the_role_and_the_time_of_its_token(guarded: Server) -> None:
    token = signed(operator="view", exp=int(time.time()) + 600)
    desk, signed_in = page(guarded, token=token)
    me = desk.ask("GET", "/me", None, **signed_in).json()
    assert (me["who"], me["role"]) == ("joe", "view")
    assert me["expires"] / 1000 - time.time() < 660
    assert desk.ask("POST", "/dead-letters/discard", {"all": True}, **signed_in).status == 403


def test_no_subject_of_a_token_has_the_name_of_the_admin_token(guarded: Server) -> None:
    """The audit tells them apart, and the jobs of the one are not the other's."""
    subjects = ("", "admin", "admin (jwt)", "admin (jwt) (jwt)", "joe", "admins")
    names = [operator_of(Grants(subject, role=Role.VIEW))[0] for subject in subjects]
    assert names == ["admin", "admin (jwt)", "admin (jwt) (jwt)", "admin (jwt) (jwt) (jwt)", "joe", "admins"]
    token = signed(sub="admin", operator="view")
    desk, signed_in = page(guarded, token=token)
    whos = [Desk(guarded, token).get("/me")["who"], desk.ask("GET", "/me", None, **signed_in).json()["who"]]
    assert whos == ["admin (jwt)", "admin (jwt)"]


def test_code_signs_in_once(guarded: Server) -> None:
    made = code(TOKEN)
    desk, signed_in = page(guarded, code=made)
    assert desk.ask("GET", "/me", None, **signed_in).json()["role"] == "destroy"
    again = desk.ask("POST", "/sign-in", {"code": made})
    assert (again.status, "has been used" in again.json()["message"]) == (401, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"token": TOKEN, "code": "x"}, 400),
        ({"token": "not-the-token-of-this-server"}, 401),
        ({"code": "x"}, 401),
        ({"code": "é"}, 401),
        ({"token": "x" * 10_000_000}, 413),
    ],
)
def test_wrong_sign_in_is_refused(guarded: Server, body: Any, status: int) -> None:
    response = Desk(guarded, None).ask("POST", "/sign-in", body)
    assert (response.status, response.header("Set-Cookie")) == (status, None), response.body


def test_token_of_no_operator_does_not_sign_in(guarded: Server) -> None:
    assert Desk(guarded, None).ask("POST", "/sign-in", {"token": signed()}).status == 403


def test_wrong_cookie_opens_no_route(guarded: Server) -> None:
    _, signed_in = page(guarded, token=TOKEN)
    name, _, value = signed_in["Cookie"].partition("=")
    head, payload, signature = value.split(".")
    of_another_port = f"crewel_operator_1={value}"
    forged = f"{head}.{payload}.{'A' * len(signature)}"
    for cookie in (of_another_port, f"{name}={forged}", f"{name}=", f"{name}={code(TOKEN)}"):
        for route in CLOSED:
            response = Desk(guarded, None).ask(route.method, filled(route.path), None, Cookie=cookie)
            assert response.status == 401, (cookie, route.method, route.path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_page_of_a_foreign_origin_cannot_use_the_cookie(guarded: Server, headers: dict[str, str]) -> None:
    desk, signed_in = page(guarded, token=TOKEN)
    for route in CLOSED:
        response = desk.ask(route.method, filled(route.path), None, **signed_in, **headers)
        assert response.status == 403, (route.method, route.path)
    assert desk.ask("POST", "/sign-in", {"token": TOKEN}, **headers).status == (
        200 if headers == {"Sec-Fetch-Site": "same-site"} else 403
    )


def test_own_page_uses_the_cookie(guarded: Server) -> None:
    desk, signed_in = page(guarded, token=TOKEN)
    own = {"Origin": guarded.base, "Sec-Fetch-Site": "same-origin"}
    assert desk.ask("GET", "/me", None, **signed_in, **own).status == 200

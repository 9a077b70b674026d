"""Operators whose roles hold for some channels: each route and each command answers for these, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from crewel.admin.group_resource import GROUP
from crewel.admin.operation import About
from crewel.admin.rest import ROUTES
from crewel.admin.route import Route
from crewel.security.grants import Role
from crewel.storage.recent_rates import KINDS
from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.functional.test_presence import call
from tests.functional.wire import close_connections, until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

ROLES = ["operate:/orders/**", "view:/stock/*"]
KEPT = {"publish": {"persistent": True, "history": {"maxEntries": 9}}}
FORBIDDEN = (403, "user.security.authorization.notAuthorized")
MISSING = (404, "user.illegalArgument")


pytestmark = pytest.mark.server


@dataclass
class Shop:
    """A server with orders, which the operator may see, and menus, which they may not."""

    server: Server
    inside: dict[str, str]
    """What fills a path, of the orders."""
    outside: dict[str, str]

    @property
    def operator(self) -> Desk:
        return Desk(self.server, signed(sub="ann", operator=ROLES))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    directory = tmp_path_factory.mktemp("shop")
    sets = (*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(directory)}")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
    speaker, admin = Receiver(server).be("speaker/1", token=TOKEN), Desk(server)
    filled = []
    for subject, channel in (("cook", "/orders/new"), ("waiter", "/menu/today")):
        receiver = Receiver(server).be(f"{subject}/1", token=signed(sub=subject, subscribe=["/**"]))
        receiver.subscribe(channel)
        worker = Receiver(server).be(f"{subject}/2", token=signed(sub=subject, subscribe=["/**"], group=["/**"]))
        join(worker, channel)
        call(speaker, channel, "enter")
        for number in range(5):
            speaker.publish(channel, f"{channel} {number}", ext=KEPT)
        worker.accept(worker.take())
        messages = receiver.take()
        receiver.accept(messages[3:4])
        receiver.reject(messages[:3])
        *letters, discarded = until(
            lambda name=subject: found if len(found := admin.letters(f"receiver={name}")) == 3 else None
        )
        admin.post("/dead-letters/discard", {"ids": [discarded["id"]]})
        body = {"what": "redrive", "all": True, "channel": channel, "contains": "not there"}
        filled.append({
            "subject": subject, "number": "1", "channel": channel[1:], "id": letters[0]["id"], "message": letters[0]["message"],
            "job": admin.post("/jobs", body)["id"], "binned": discarded["id"], "scheduled": schedule(speaker, channel),
        })  # fmt: skip
    both = Receiver(server).be("both/1", token=signed(sub="both", subscribe=["/**"]))
    both.subscribe("/orders/new", "/menu/today")
    member = Receiver(server).be("both/2", token=signed(sub="both", subscribe=["/**"], group=["/**"]))
    member.subscribe("/menu/today")
    join(member, "/orders/new")
    admin.post("/sessions/both/2/hold", {"reason": "the menu is wrong"})
    inside, outside = filled
    shop = Shop(server, inside, outside)
    own = {"what": "redrive", "all": True, "contains": "not there"}
    shop.inside["job"] = shop.operator.post("/jobs", own)["id"]
    yield shop
    close_connections()
    server.end_well()


def schedule(speaker: Receiver, channel: str) -> str:
    """Publish in an hour; the id."""
    (reply,) = speaker.publish(channel, channel, ext={"publish": {"persistent": True, "deliverAfter": 3_600_000}})
    return str(reply["ext"]["publish"]["id"])


def join(member: Receiver, channel: str) -> None:
    """Subscribe as a member of the group `workers`."""
    (reply,) = member.send(
        member.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"group": "workers"}})
    )
    assert reply["successful"], reply


def filled(route: Route, names: dict[str, str]) -> str:
    path = route.path.replace("bin/{id}", "bin/{binned}")
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return f"{path}?name=workers" if route.path == GROUP else path


OF_SERVER = [route for route in ROUTES if route.about is About.SERVER and not route.is_public]
NAMED = [route for route in ROUTES if route.about in (About.CHANNEL, About.SESSION, About.SUBJECT)]
CHOSEN = [route for route in ROUTES if route.about is About.MANY]
BY = {"/dead-letters/groups": ("code", "channel", "receiver", "likeness", "reason", "returns"), "/rates": KINDS}


def test_each_route_says_what_it_is_about() -> None:
    """A row that says nothing is of the server as a whole, and closed: here are those that are meant to be."""
    assert {route.path for route in OF_SERVER} == {
        "/overview", "/sessions/{subject}/{number}/trace", "/nodes", "/alerts", "/settings", "/audit", "/audit/export", "/feed",
        "/timeline", "/dead-letters/accounts",
    }  # fmt: skip


@pytest.mark.parametrize("route", OF_SERVER, ids=lambda route: f"{route.method} {route.path}")
def test_what_is_of_the_server_needs_a_role_on_all_channels(shop: Shop, route: Route) -> None:
    response = shop.operator.ask(route.method, filled(route, shop.inside))
    assert (response.status, response.json()["errorCode"]) == FORBIDDEN
    every = Desk(shop.server, signed(operator=["destroy:/**"])).ask(route.method, filled(route, shop.inside))
    assert (every.status, every.json()["errorCode"]) == FORBIDDEN


@pytest.mark.parametrize("route", NAMED, ids=lambda route: f"{route.method} {route.path}")
def test_what_a_path_names_has_to_be_covered(shop: Shop, route: Route) -> None:
    for names in (shop.outside, {**shop.outside, "subject": "both"}):
        response = shop.operator.ask(route.method, filled(route, names))
        # Whether a session is there does not show; a channel is covered by its name.
        is_told = route.about is About.CHANNEL or route.needs is Role.DESTROY
        assert (response.status, response.json()["errorCode"]) == (FORBIDDEN if is_told else MISSING), response
    if route.method == "GET":
        told = shop.operator.get(filled(route, shop.inside))
        assert told.get("may", "operate") == "operate"
    elif route.needs is Role.DESTROY:
        response = shop.operator.ask(route.method, filled(route, shop.inside))
        assert (response.status, response.json()["errorCode"]) == FORBIDDEN, response


@pytest.mark.parametrize(
    "route", [route for route in CHOSEN if route.method == "GET"], ids=lambda route: f"{route.method} {route.path}"
)
def test_what_a_handler_chooses_is_covered(shop: Shop, route: Route) -> None:
    for query in [f"?by={kind}" for kind in BY.get(route.path, ())] or [""]:
        admin = Desk(shop.server).ask("GET", filled(route, shop.outside) + query)
        assert admin.status == 200
        response = shop.operator.ask("GET", filled(route, shop.outside) + query)
        if route.path in ("/commands", "/me"):
            continue
        # The names of a group's members belong to the group, and so to its channel.
        body = response.body.replace(b'"client/both/2"', b"") if route.path == "/topics" else response.body
        for word in (b"menu", b"waiter", b"both"):
            assert word not in body, body
        if "{" in route.path:
            assert response.status == 404
            assert shop.operator.ask("GET", filled(route, shop.inside)).status == 200
        elif route.path not in ("/requests", "/jobs", "/dead-letters/count", "/dead-letters/groups", "/rates"):
            assert b"orders" in response.body or b"cook" in response.body
    if route.path == "/dead-letters/count":
        assert shop.operator.get(route.path)["count"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_rates_are_those_of_what_the_operator_may_see(shop: Shop, kind: str) -> None:
    names = {
        "receiver": ("client/cook/1", "client/waiter/1"),
        "group": ("/orders/new workers", "/menu/today workers"),
        "topic": ("/orders/new", "/menu/today"),
    }
    admin = Desk(shop.server)
    # The server keeps an answer for some seconds.
    until(lambda: set(names[kind]) <= admin.get(f"/rates?by={kind}")["rates"].keys())
    seen = shop.operator.get(f"/rates?by={kind}")["rates"].keys()
    # What a receiver has acknowledged may be of a channel that it has left.
    assert (names[kind][0] in seen) is (kind != "receiver")
    assert not [name for name in seen if any(word in name for word in ("menu", "waiter", "both", "speaker"))]


def test_the_bin_counts_its_dead_letters_for_operators_of_all_channels_only(shop: Shop) -> None:
    assert Desk(shop.server).get("/dead-letters/bin")["kept"] == 2
    told = shop.operator.get("/dead-letters/bin")
    assert ([each["id"] for each in told["letters"]], told["kept"]) == ([shop.inside["binned"]], None)


def test_why_a_member_is_stopped_is_shown_only_if_its_session_is_covered(shop: Shop) -> None:
    group = "/groups/orders/new?name=workers"
    causes = {each["name"]: each["cause"] for each in Desk(shop.server).get(group)["members"]}
    assert "the menu is wrong" in causes["client/both/2"]
    for each in shop.operator.get(group)["members"]:
        assert each["cause"] == ("" if each["name"] == "client/both/2" else causes[each["name"]])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/dead-letters/redrive", {"ids": ["OUTSIDE"]}, 200),
        ("/dead-letters/redrive", {"ids": ["INSIDE", "OUTSIDE"], "dryRun": True}, 200),
        ("/dead-letters/discard", {"ids": ["INSIDE"]}, 403),
        ("/dead-letters/restore", {"ids": ["OUTBINNED"]}, 200),
        ("/dead-letters/OUTSIDE/edit", {"data": 1}, 404),
        ("/publish/menu/today", {"data": 1}, 403),
        ("/publish/stock/new", {"data": 1}, 403),
        ("/jobs", {"what": "redrive", "ids": ["OUTSIDE"]}, 200),
        ("/jobs", {"what": "discard", "all": True}, 403),
        ("/jobs", {"what": "drain", "sessions": ["client/waiter/1"]}, 404),
        ("/jobs", {"what": "drain", "sessions": ["client/cook/1", "client/gone/1"]}, 404),
        ("/jobs", {"what": "drain", "subject": "waiter"}, 404),
        ("/jobs/OUTJOB/stop", {}, 404),
        ("/feed", {}, 403),
        ("/commands", {"command": "__cmd:?version"}, 403),
        ("/commands", {"command": "__cmd:topic/menu/today/?stateStr"}, 403),
        ("/commands", {"command": "__cmd:topic/orders/new/?stateStr"}, 200),
        ("/commands", {"command": "__cmd:topic/orders/new/?clearHistoryQueue"}, 403),
        ("/commands", {"command": "__cmd:client/waiter/1/?cbQueueNumMsgs"}, 400),
        ("/commands", {"command": "__cmd:client/cook/1/?cbQueueNumMsgs"}, 200),
        ("/commands", {"command": "__cmd:client/gone/1/?cbQueueNumMsgs"}, 400),
        ("/commands", {"command": "__cmd:client/waiter/?numSessions"}, 400),
        ("/commands", {"command": "__cmd:client/cook/?numSessions"}, 200),
    ],
)
def test_what_a_body_names_has_to_be_covered(shop: Shop, path: str, body: Any, status: int) -> None:
    ids = {
        "INSIDE": shop.inside["id"], "OUTSIDE": shop.outside["id"],
        "INBINNED": shop.inside["binned"], "OUTBINNED": shop.outside["binned"],
    }  # fmt: skip
    if "ids" in body:
        body = {**body, "ids": [ids[each] for each in body["ids"]]}
    response = shop.operator.ask(
        "POST", path.replace("OUTJOB", shop.outside["job"]).replace("OUTSIDE", ids["OUTSIDE"]), body
    )
    assert response.status == status, response
    told = response.json()
    if status == 200 and "ids" in body:  # what is outside is as if it were not there
        assert told.get("redriven", told.get("restored", told.get("total", 0))) == 0, told
        assert told.get("count", 1) == 1, told


@pytest.mark.parametrize(
    ("roles", "verb"),
    [
        (["view", "operate:/orders/**"], "stop"),
        (["view", "operate:/orders/**"], "pause"),
        (["operate", "destroy:/orders/**"], "resume"),
    ],
)
def test_jobs_of_others_need_a_role_on_all_channels(shop: Shop, roles: list[str], verb: str) -> None:
    admin, operator = Desk(shop.server), Desk(shop.server, signed(sub="ann", operator=roles))
    job = f"/jobs/{shop.outside['job']}"
    if verb == "resume":
        job = f"/jobs/{admin.post('/jobs', {'what': 'discard', 'all': True, 'contains': 'not there'})['id']}"
    shown = operator.ask("GET", job)
    assert (shown.status, shown.json()["may"]) == (200, roles[0])
    response = operator.ask("POST", f"{job}/{verb}")
    assert (response.status, response.json()["errorCode"]) == FORBIDDEN
    own = f"/jobs/{shop.inside['job']}"
    until(lambda: operator.get(own)["ended"] is not None)
    assert operator.get(own)["may"] == roles[1].partition(":")[0]
    assert operator.ask("POST", f"{own}/stop").json()["errorCode"] == "user.illegalArgument"  # it has ended


def test_all_that_match_are_those_of_the_channels(shop: Shop) -> None:
    assert shop.operator.post("/dead-letters/redrive", {"all": True, "dryRun": True})["count"] == 2
    assert (
        shop.operator.post("/dead-letters/redrive", {"all": True, "dryRun": True, "channel": "/menu/**"})["count"] == 0
    )
    job = shop.operator.post("/jobs", {"what": "redrive", "all": True})
    assert (job["total"], job["choice"]["within"]) == (2, ["/orders/**"])
    until(lambda: shop.operator.get(f"/jobs/{job['id']}")["state"] == "done")
    assert len(Desk(shop.server).letters("channel=/menu/today")) == 2
    assert Desk(shop.server).letters("channel=/orders/new") == []
    assert shop.operator.post("/dead-letters/restore", {"all": True})["ids"].keys() == {shop.inside["binned"]}
    assert [each["id"] for each in Desk(shop.server).get("/dead-letters/bin")["letters"]] == [shop.outside["binned"]]


def test_a_page_is_signed_in_with_the_same_roles_and_the_wire_gives_none(shop: Shop) -> None:
    token = signed(sub="ann", operator=ROLES)
    response = Desk(shop.server, None).ask("POST", "/sign-in", {"token": token})
    cookie = (response.header("Set-Cookie") or "").partition(";")[0]
    me = Desk(shop.server, None).ask("GET", "/me", Cookie=cookie).json()
    assert (me["role"], me["everywhere"]) == ("operate", None)
    assert me["channels"] == [
        {"role": "operate", "patterns": ["/orders/**"]}, {"role": "view", "patterns": ["/stock/*"]},
    ]  # fmt: skip
    assert Desk(shop.server, None).ask("GET", "/overview", Cookie=cookie).status == 403
    client = Receiver(shop.server).be("ann/1", token=token)
    reply = client.send(client.message("/meta/subscribe", subscription="/__sys__notices"))[-1]
    assert reply["successful"] is False
    wrong = Desk(shop.server, signed(operator=["opreate:/orders/**"])).ask("GET", "/me")
    assert wrong.status == 401
    assert "the claim operator: 'opreate:/orders/**' is not a role" in wrong.json()["message"]

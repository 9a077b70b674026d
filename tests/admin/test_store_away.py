"""What operators get while the store is away: a way in, what the server knows without it, and nothing made up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest

from crewel.security.sign_in import code
from tests.admin.desk import SETS, STORED, TOKEN, Desk, Receiver
from tests.functional.wire import Response, until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server
from tests.store_process import StoreProcess

pytestmark = pytest.mark.server

FIGURES = ("usedMemory", "maxMemory", "letters", "lettersNew", "lettersDropped", "lettersBytes")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    store = StoreProcess(tmp_path_factory.mktemp("store"))
    yield store
    store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: StoreProcess) -> Iterator[Server]:
    """A server with dead letters, which its store takes away with it."""
    directory = tmp_path_factory.mktemp("server")
    sets = (*SETS, f"storage.url={store.url}", "security.policy=jwt", f"security.jwt_keys={secret_file(directory)}")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
    joe = Receiver(server).be("joe/1", token=TOKEN)
    joe.subscribe("/a/b")
    speaker = Receiver(server).be(token=TOKEN)
    for number in range(3):
        speaker.publish("/a/b", number, ext=STORED)
    Desk(server).post("/sessions/joe/1/drain")
    until(lambda: Desk(server).get("/overview")["store"]["letters"] == 3)
    yield server
    server.end_well()


@pytest.fixture
def away(server: Server, store: StoreProcess) -> Iterator[Server]:
    """The server, while its store is dead."""
    store.kill()
    until(lambda: Desk(server).cmd("__cmd:?lastError") != "")
    yield server
    store.start()
    until(lambda: Desk(server).cmd("__cmd:?lastError") == "")


def sign_in(server: Server, **given: str) -> tuple[Response, dict[str, str]]:
    """The answer, and the header with the cookie that it sets."""
    response = Desk(server, None).ask("POST", "/sign-in", given)
    cookies = SimpleCookie(response.header("Set-Cookie") or "")
    return response, {"Cookie": "; ".join(f"{name}={each.value}" for name, each in cookies.items())}


def test_operators_sign_in_by_token_and_a_link_says_that_it_cannot_be_checked(away: Server) -> None:
    for token, who in ((TOKEN, "admin"), (signed(sub="ann", operator=True), "ann")):
        _, cookie = sign_in(away, token=token)
        me = Desk(away, None).ask("GET", "/me", None, **cookie)
        assert (me.status, me.json()["who"]) == (200, who)
        assert Desk(away, None).ask("GET", "/overview", None, **cookie).status == 200
    letters = Desk(away).ask("GET", "/dead-letters")
    assert (letters.status, letters.json()["message"][:9]) == (503, "the store")
    response, _ = sign_in(away, code=code(TOKEN))
    assert response.status == 503
    assert "a link that works once cannot be checked: sign in with a token" in response.json()["message"]


def test_figures_are_unknown_since_the_store_is_away_and_never_0(away: Server) -> None:
    told = Desk(away).get("/overview")
    store, (finding,) = told["store"], [each for each in told["findings"] if each["key"] == "not-ready-store"]
    assert {name: store[name] for name in FIGURES} == dict.fromkeys(FIGURES)
    assert store["unknownSince"] == finding["since"] <= told["at"]
    assert store["trouble"]
    assert finding["cause"]
    for resource in ("receivers", "sessions"):  # those that only the store knows are missing
        assert Desk(away).get(f"/{resource}")["unknownSince"] == store["unknownSince"]


def test_what_is_done_while_the_store_is_away_is_in_the_audit_with_the_time_at_which_it_was_asked(
    server: Server, store: StoreProcess
) -> None:
    desk, asked = Desk(server), time.time()
    store.stop()
    with desk.send("POST", "/sessions/joe/1/hold", {"reason": "while it is away"}) as waiting:
        until(lambda: desk.get("/sessions/joe/1")["holdback"])
        until(lambda: time.time() > asked + 1.5)
        store.go_on()
        waiting.response()
    (entry,) = until(lambda: desk.get("/audit?about=client/joe/1&what=hold")["entries"])
    assert entry["at"] < (asked + 1.2) * 1000
    until(lambda: desk.cmd("__cmd:?lastError") == "")
    assert desk.post("/sessions/joe/1/activate")["active"] is True


def test_nothing_is_unknown_while_the_store_is_there(server: Server) -> None:
    assert Desk(server).get("/receivers")["unknownSince"] is None


def test_a_publish_that_the_store_refuses_is_none_that_came_in(server: Server, store: StoreProcess) -> None:
    speaker, desk = Receiver(server).be(token=TOKEN), Desk(server)
    speaker.publish("/a/b", 1, ext=STORED)
    accepted = desk.cmd("__cmd:?numPublish")
    store.kill()
    replies: list[Any] = speaker.send(speaker.message("/a/b", data=2, ext=STORED))
    assert [each["successful"] for each in replies if each["channel"] == "/a/b"] == [False]
    assert desk.cmd("__cmd:?numPublish") == accepted
    store.start()
    until(lambda: desk.cmd("__cmd:?lastError") == "")
    until(lambda: desk.get("/overview")["store"]["letters"] == 3)
    (outage, *_) = (each for each in desk.get("/timeline")["events"] if each["what"] == "store outage")
    assert outage["why"]
    assert all(outage["why"])
    speaker = Receiver(server)
    until(lambda: speaker.shake(token=TOKEN)["successful"])  # the sessions are read again
    speaker.publish("/a/b", 3, ext=STORED)
    assert desk.cmd("__cmd:?numPublish") == accepted + 1

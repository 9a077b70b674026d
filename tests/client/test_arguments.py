"""An argument of a wrong type, and one that there is not, are refused at the call: a client that opens with it would fail in
its first outage."""

from pathlib import Path
from typing import Any

import pytest

from crewel.client import BackoffRule, Client, Extension, Outbox, ResumeCallbacks

URL = "http://127.0.0.1:1/cometd"
RULE = r"is a BackoffRule, such as BackoffRule\(initial=0\.2, factor=2, maximum=30\), not"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"backoff": 2}, f"backoff {RULE} 2"),
        ({"transports": "websocket"}, r'transports is a list such as \["websocket"\], not the string \'websocket\''),
        ({"transports": 3}, r'transports is a list such as \["websocket"\], not 3'),
        ({"on_state": "log"}, "on_state is a function, not 'log'"),
        ({"on_rejected": []}, r"on_rejected is a function, not \[\]"),
        ({"extensions": 3}, "extensions is a list of extensions, not 3"),
        ({"extensions": [Extension]}, "extensions has an object with the methods incoming and outgoing, not <class"),
        ({"extensions": ["ack"]}, "extensions has an object with the methods incoming and outgoing, not 'ack'"),
        ({"outbox": "orders.outbox"}, r"outbox is an Outbox, such as Outbox\(\"orders.outbox\"\), not 'orders.outbox'"),
        ({"resume_store": "a"}, "resume_store is an object with the coroutine functions load and save, .*, not 'a'"),
        ({"resume_file": 3}, "resume_file is a path, not 3"),
        ({"ssl": "ca.pem"}, "ssl is an ssl.SSLContext, not 'ca.pem'"),
        ({"headers": [("a", "b")]}, r"headers is a dict of strings, not \[\('a', 'b'\)\]"),
        ({"headers": {"a": 1}}, r"headers is a dict of strings, not \{'a': 1\}"),
        ({"cookies": "a=b"}, "cookies is a dict of strings, not 'a=b'"),
        ({"handshake": "a"}, "handshake is a dict, not 'a'"),
        ({"session": ["a"]}, r"session is a dict, not \['a'\]"),
        ({"name": 3}, "name is a string, not 3"),
        (
            {"token": 3},
            "token is a string, or a function that returns one, not int",
        ),  # without the value: it may be a secret
        ({"resume": b"secret"}, "resume is a string, not bytes"),
        ({"network_delay": "1"}, "network_delay is a number of seconds, not '1'"),
        ({"open_timeout": None}, "open_timeout is a number of seconds, not None"),
        ({"close_timeout": "1"}, "close_timeout is a number of seconds, not '1'"),
        ({"name_timeout": True}, "name_timeout is a number of seconds, not True"),
        ({"max_bytes": 1.5}, "max_bytes is a whole number, not 1.5"),
        ({"user": "x"}, r"Client\(\) has no argument 'user'$"),
        ({"on_stat": print}, r"Client\(\) has no argument 'on_stat': did you mean 'on_state'\?"),
        ({"open_time": 3}, r"Client\(\) has no argument 'open_time': did you mean 'open_timeout'\?"),
    ],
)
def test_a_client_names_the_argument_that_does_not_fit(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        Client(URL, **given)


def test_a_url_is_a_string() -> None:
    with pytest.raises(TypeError, match="url is a string, not None"):
        Client(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"backoff": 0.2}, f"backoff {RULE} 0.2"),
        ({"backoff": None}, f"backoff {RULE} None"),
        ({"name": 3}, "name is a string, not 3"),
        ({"resume_store": "a"}, "resume_store is an object with the coroutine functions load and save"),
        ({"resume_file": 3}, "resume_file is a path, not 3"),
        ({"on_state": 3}, "on_state is a function, not 3"),
        ({"attempt": 3}, r"consume\(\) has no argument 'attempt': did you mean 'attempts'\?"),
        ({"filtre": "x"}, r"consume\(\) has no argument 'filtre': did you mean 'filter'\?"),
        ({"bound": 3}, r"consume\(\) has no argument 'bound'$"),
    ],
)
async def test_a_worker_names_the_argument_that_does_not_fit(given: dict[str, Any], complaint: str) -> None:
    client = Client(URL)
    with pytest.raises(TypeError, match=complaint):
        client.consume("/a", **{"name": "worker/1", **given})


@pytest.mark.parametrize("call", ["subscribe", "listen"])
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"callback": "print"}, "callback is a function, not 'print'"),
        ({"overflow": "hold"}, "overflow is a member of Overflow, such as Overflow.HOLD, not 'hold'"),
        ({"bound": "9"}, "bound is a whole number, not '9'"),
    ],
)
async def test_a_subscription_names_the_argument_that_does_not_fit(
    call: str, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(TypeError, match=complaint):
        await getattr(Client(URL), call)("/a", **given)


@pytest.mark.parametrize("call", ["publish", "enqueue", "request"])
async def test_a_publish_names_the_option_that_it_does_not_have(call: str, tmp_path: Path) -> None:
    unknown: dict[str, Any] = {"persistnt": True}
    with pytest.raises(TypeError, match=rf"{call}\(\) has no argument 'persistnt': did you mean 'persistent'\?"):
        await getattr(Client(URL, outbox=Outbox(tmp_path / "outbox")), call)("/a", 1, **unknown)
    with pytest.raises(TypeError, match=r"publish\(\) has no argument 'bound'$"):
        Client(URL).batch().publish("/a", 1, bound=3)  # type: ignore[call-arg]


async def test_other_calls_name_the_argument_that_does_not_fit() -> None:
    client = Client(URL)
    unknown: dict[str, Any] = {"filtr": "x"}
    with pytest.raises(TypeError, match="ext is a dict, not 'x'"):
        await client.subscribe("/a", ext="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"subscribe\(\) has no argument 'filtr': did you mean 'filter'\?"):
        await client.subscribe("/a", **unknown)
    with pytest.raises(TypeError, match="callback is a function, not None"):
        await client.reply("/a", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at_once is a whole number, not '2'"):
        await client.reply("/a", print, at_once="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="extension is an object with the methods incoming and outgoing, not 3"):
        client.add_extension(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="listener is a function, not 3"):
        client.on_state(3)  # type: ignore[arg-type]


def test_a_coroutine_function_that_no_code_would_await_is_refused() -> None:
    async def later(_: object) -> None: ...

    given: Any = later
    for make in (
        lambda: Client(URL, on_state=given),
        lambda: Client(URL, on_rejected=given),
        lambda: Client(URL).on_state(given),
        lambda: Outbox(on_refused=given),
    ):
        with pytest.raises(TypeError, match="is a plain function, not a coroutine function"):
            make()


def test_what_is_given_to_an_argument_is_checked_too() -> None:
    with pytest.raises(TypeError, match="path is a path, not 3"):
        Outbox(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_refused is a function, not 3"):
        Outbox(on_refused=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_load is a function, not 'a'"):
        ResumeCallbacks("a", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_save is a function, not None"):
        ResumeCallbacks(str, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="maximum is a number, not '30'"):
        BackoffRule(maximum="30")  # type: ignore[arg-type]

"""Addresses: where they come from, and that nothing tells their passwords."""

from __future__ import annotations

import pickle
import socket
import ssl
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import trustme
from redis.connection import DefaultParser

from crewel.errors import SettingsError, StoreUnavailable
from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.source.extents import Extents
from tests.store_process import StoreProcess, shared_store

SECRET = "redis://joe:wdFsEcReT@store.example:7000/3"


def test_the_environment_says_where_the_store_is(tmp_path: Path) -> None:
    config = tmp_path / "crewel.toml"
    config.write_text('[storage]\nurl = "redis://other"\nprefix = "other:"\n')
    environ = {"CREWEL_STORAGE__URL": SECRET}
    assert Address.found(environ, config) == Address(SECRET, "other:")
    assert Address.found({**environ, "CREWEL_STORAGE__PREFIX": "x:"}, config).keys.facts == "x:{crewel}:facts"
    assert Address.found({}, config) == Address("redis://other", "other:")


def test_without_an_address_it_is_the_store_that_a_server_has_here(tmp_path: Path) -> None:
    nothing = tmp_path / "crewel.toml"
    found = Address.found({"CREWEL_STORAGE__DATA_DIR": str(tmp_path / "my data")}, nothing)
    assert found.url == f"unix://{tmp_path}/my%20data/store.sock"
    assert found.prefix == "crewel:"
    assert Address.found({}, nothing).url.endswith("/data/store.sock")


def test_what_cannot_be_an_address_is_refused(tmp_path: Path) -> None:
    nothing = tmp_path / "crewel.toml"
    with pytest.raises(SettingsError, match="too long for a socket"):
        Address.found({"CREWEL_STORAGE__DATA_DIR": "x" * 120}, nothing)
    with pytest.raises(SettingsError, match="no address of a store"):
        Address("http://joe:wdFsEcReT@store").client()
    nothing.write_text("[storage\n")
    with pytest.raises(SettingsError, match="cannot be read"):
        Address.found({}, nothing)


@pytest.mark.parametrize(
    "url",
    [
        SECRET,
        SECRET.replace("redis:", "rediss:"),
        "http://joe:wdFsEcReT@store",
        "redis://joe:[wdFsEcReT]@store",
        "redis://joe:[wdFsEcReT@store",
        "redis://joe:wdFsEcReT/x@store",
        "redis://joe:wdFsEcReT#x@store",
    ],
)
def test_no_text_tells_the_password(url: str) -> None:
    address = Address(url)
    texts = [repr(address), str(address), f"{address}", f"{[address]}"]
    with pytest.raises((SettingsError, StoreUnavailable)) as caught:
        patiently(lambda: address.client().ping(), 0)
    texts += [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
    assert not [text for text in texts if "wdFsEcReT" in text or "joe" in text]
    assert pickle.loads(pickle.dumps(address)) == address


def serve_tls(listening: socket.socket, context: ssl.SSLContext, store: str) -> None:
    """Take the first connection that knows our certificate, and pass on what comes either way, until it ends."""
    while True:
        plain, _ = listening.accept()
        try:
            client = context.wrap_socket(plain, server_side=True)
        except OSError:
            plain.close()
            continue
        with client, socket.socket(socket.AF_UNIX) as behind:
            behind.connect(store)
            while request := client.recv(65536):
                behind.sendall(request)
                client.sendall(behind.recv(65536))
        return


def test_tls_is_spoken_where_the_address_says_so(tmp_path: Path) -> None:
    """The store that comes with Crewel speaks none itself."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"rediss://127.0.0.1:{listening.getsockname()[1]}"
        relay = threading.Thread(target=serve_tls, args=(listening, context, str(shared_store().socket)))
        relay.start()
        with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            Extents(Address(url), 0).look(["facts"])
        extents = Extents(Address(f"{url}?ssl_ca_certs={tmp_path}/ca.pem", "nobody:"), 1)
        assert extents.look(["facts"])["facts"].length == 0
        extents.close()
        relay.join(10)
        assert not relay.is_alive()


def test_a_store_with_a_password_is_read_with_it_and_says_so_without(tmp_path: Path) -> None:
    store = StoreProcess(tmp_path, requirepass="wdFsEcReT")
    try:
        known = Address(store.url.replace("unix://", "unix://:wdFsEcReT@"))
        assert Extents(known, 1).look(["facts"])["facts"].added == 0
        for url in (store.url, store.url.replace("unix://", "unix://:wrong@")):
            with pytest.raises(StoreUnavailable, match="refuses this user"):
                Extents(Address(url), 1).look(["facts"])
    finally:
        store.close()


def failing(times: int, error: Exception) -> Callable[[], int]:
    """A step that works after so many failures, and tells how often it was tried."""
    tried = 0

    def step() -> int:
        nonlocal tried
        tried += 1
        if tried <= times:
            raise error
        return tried

    return step


@pytest.mark.parametrize(
    "error",
    [redis.ConnectionError("gone"), redis.exceptions.BusyLoadingError("LOADING"), redis.TimeoutError(), OSError()],
)
def test_what_a_store_that_is_away_says_is_tried_again(error: Exception) -> None:
    assert patiently(failing(2, error)) == 3


@pytest.mark.parametrize(
    "said",
    [
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "MOVED 3999 127.0.0.1:6381",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "BUSY Valkey is busy running a script.",
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_store_says_that_takes_it_later_is_tried_again(said: str, is_known: bool) -> None:
    """The client library makes errors of its own of some codes, and takes the code out of the text."""
    error = DefaultParser.parse_error(said) if is_known else redis.ResponseError(said)
    assert patiently(failing(1, error)) == 2


def test_patience_ends_and_other_errors_are_passed_on() -> None:
    with pytest.raises(StoreUnavailable, match="away for 0 s: gone"):
        patiently(failing(9, redis.ConnectionError("gone")), 0)
    with pytest.raises(redis.ResponseError):
        patiently(failing(1, redis.ResponseError("wrong")))

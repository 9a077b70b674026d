"""`crewel serve`: its ready line, how it ends, and what it refuses to do."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from crewel.cli import serve
from tests.cli.command import assert_refused, crewel
from tests.conftest import StartServer
from tests.store_process import shared_store

LIMIT_S = 30


def test_the_ready_line_names_the_place_where_bayeux_is_served(start_server: StartServer) -> None:
    server = start_server("bayeux.path=/some/where")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/some/where", server.url)
    with urllib.request.urlopen(f"{server.base}/health/live", timeout=LIMIT_S) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_with_0_on_a_signal(start_server: StartServer, number: signal.Signals) -> None:
    server = start_server()
    os.kill(server.pid, number)
    assert server.wait() == 0


def test_stdout_holds_the_ready_line_only_and_logs_are_json_when_piped(start_server: StartServer) -> None:
    server = start_server("log.level=debug")
    server.terminate()
    server.close()
    assert server.stdout_after_ready == ""
    for line in server.stderr.splitlines():
        assert json.loads(line)["level"] in {"debug", "info", "warning", "error"}


def test_settings_come_from_file_environment_and_options(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "crewel.toml").write_text('[bayeux]\npath = "/toml"\n[http]\ndemos = false\n')
    server = start_server(environ={"CREWEL_BAYEUX__PATH": "/env"})
    assert server.url.endswith("/env")
    assert start_server("bayeux.path=/set", environ={"CREWEL_BAYEUX__PATH": "/env"}).url.endswith("/set")


def test_host_is_a_shorthand(start_server: StartServer) -> None:
    assert start_server(arguments=["--host", "localhost"]).url.startswith("http://localhost:")


def test_the_data_directory_is_a_shorthand_and_holds_the_store_of_the_server(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server("storage.url=", arguments=["--data-dir", "here"])
    assert (tmp_path / "here" / "store.sock").is_socket()
    assert server.terminate() == 0
    assert not (tmp_path / "here" / "store.sock").exists()


def test_an_untrusted_store_is_one_line(tmp_path: Path) -> None:
    with shared_store().client() as client:
        client.set("untrusted:{crewel}:format", 99)
    sets = (f"--set=storage.url={shared_store().url}", "--set=storage.prefix=untrusted:")
    assert_refused(crewel("serve", "--port", "0", *sets, directory=tmp_path), "format 99", "use the newer version")


def test_an_open_policy_beyond_loopback_needs_allow_open(start_server: StartServer, tmp_path: Path) -> None:
    refused = crewel("serve", "--host", "0.0.0.0", "--port", "0", directory=tmp_path)
    assert_refused(refused, "http.host 0.0.0.0 is not loopback", "security.allow_open=true")
    assert start_server("security.allow_open=true", arguments=["--host", "0.0.0.0"]).port


@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_admin_token_is_printed_on_a_terminal(tmp_path: Path, on_terminal: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "crewel", "serve", "--port=0", "--set=storage.enabled=false"]
    errors = theirs if on_terminal else subprocess.PIPE
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=errors)
    os.close(theirs)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ready ")
    token = (tmp_path / "data" / "admin.token").read_bytes().strip()
    process.terminate()
    _, written = process.communicate(timeout=60)
    told = os.read(ours, 10000) if on_terminal else written
    os.close(ours)
    assert (b"the admin token is " + token in told) is on_terminal
    assert (token in told) is on_terminal


def test_an_unknown_host_is_one_line(tmp_path: Path) -> None:
    assert_refused(crewel("serve", "--host", "no.such.host.invalid", directory=tmp_path), "no.such.host.invalid")


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = crewel("serve", "--port", port, "--set", "log.level=warning", directory=tmp_path)
        assert_refused(ended, f"127.0.0.1:{port}: address already in use", "--port")


@pytest.mark.parametrize("option", ["--port", "--control-port"])
def test_a_port_in_use_is_one_line_with_ephemeral_too(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = crewel("serve", "--ephemeral", option, port, "--set=log.level=warning", directory=tmp_path)
        assert_refused(ended, f"127.0.0.1:{port}: address already in use")


@pytest.mark.parametrize(
    ("options", "environ"),
    [(["--workers", "2"], {}), (["--set", "cluster.workers=2"], {}), ([], {"CREWEL_CLUSTER__WORKERS": "2"})],
    ids=["option", "set", "environment"],
)
def test_several_workers_are_refused_with_ephemeral(
    tmp_path: Path, options: list[str], environ: dict[str, str]
) -> None:
    ended = crewel("serve", "--ephemeral", *options, directory=tmp_path, environ=environ)
    assert_refused(ended, "--ephemeral serves with one process, and cluster.workers is 2")


def test_a_missing_certificate_is_one_line(tmp_path: Path) -> None:
    sets = ("--set", "http.tls_cert=none.pem", "--set", "http.tls_key=none.pem")
    assert_refused(crewel("serve", "--port", "0", *sets, directory=tmp_path), "http.tls_cert", "No such file")


@pytest.mark.parametrize(
    ("module", "words"),
    [("no_such_module", "no_such_module"), ("json", "json"), ("broken", "broken")],
    ids=["missing", "without a service", "failing"],
)
def test_a_service_that_cannot_be_loaded_is_one_line(tmp_path: Path, module: str, words: str) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_either\n")
    assert_refused(crewel("serve", "--port", "0", "--service", module, directory=tmp_path), words)


def test_a_service_is_found_in_the_working_directory(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from tests.cli.services import echo\n")
    server = start_server(service="mine")
    assert server.url


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used: fields 14 and 15 of /proc/PID/stat, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads Linux's /proc")
def test_a_start_takes_less_than_a_second(start_server: StartServer) -> None:
    """Processor time, which a busy machine stretches less than the clock; a start waits for nothing. One of three is enough."""
    taken: list[float] = []
    while len(taken) < 3 and (not taken or taken[-1] >= 1.0):
        taken.append(processor_seconds(start_server().pid))
    assert taken[-1] < 1.0, taken


def test_a_start_does_not_load_what_only_other_commands_need() -> None:
    others = {"rich", "pygments", "crewel.client", "crewel.security.jwt_tokens"}
    script = f"import crewel.cli.main, crewel.server, sys; print(*{others} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert ended.stdout.strip() == ""


@pytest.mark.unit
def test_the_commands_to_try_name_an_address_that_is_not_the_usual_one() -> None:
    usual = serve._to_try("http://127.0.0.1:8080/cometd", "http://127.0.0.1:8080")
    assert "--url" not in usual
    other = serve._to_try("http://127.0.0.1:9000/cometd", "http://127.0.0.1:9000")
    assert "crewel sub /chat/demo --url http://127.0.0.1:9000/cometd\n" in other
    assert "--persistent --url http://127.0.0.1:9000/cometd\n" in other

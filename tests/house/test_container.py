"""That the container would work, where there is no engine to run it: its parts are taken from the Dockerfile and
docker-compose.yml and used in a clean virtual environment, against a real store."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from packaging.requirements import Requirement

from crewel.settings.table import declared
from crewel.version import VERSION
from tests.house.source import ROOT
from tests.ports import free_port
from tests.shared_files import made_once
from tests.store_process import StoreProcess, until

pytestmark = pytest.mark.server

LIMIT_S = 120
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))


def instruction(name: str) -> str:
    """Return what the last instruction of this name says."""
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, re.MULTILINE)[-1].strip()


def environment() -> dict[str, str]:
    """Return the variables of the image."""
    return dict(pair.split("=", 1) for pair in instruction("ENV").split())


def health_check() -> list[str]:
    """Return the command that tells whether the container is healthy."""
    command: list[str] = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    return command


@pytest.fixture(scope="module")
def environment_of_its_own(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what the lock file says, and nothing else, as the image has it."""

    def make(directory: Path) -> None:
        venv.create(directory, with_pip=False)
        (packages,) = directory.glob("lib/python*/site-packages")
        for each in locked():
            linked(each, packages)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", directory / "bin" / "python"]
        run([*pip, "install", "--quiet", "--no-compile", "--no-deps", wheel])  # it is started a few times only

    return made_once(tmp_path_factory, "image", make) / "bin"


def locked() -> Iterator[metadata.Distribution]:
    """The packages that pip would install from the lock file of the server. Those of the tests have the same versions."""
    lines = re.findall(r"^[a-z0-9].*?(?= \\?$)", (ROOT / "requirements-server.lock").read_text("utf-8"), re.MULTILINE)
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate():
            found = metadata.distribution(requirement.name)
            assert requirement.specifier.contains(found.version), (requirement, found.version)
            yield found


def linked(package: metadata.Distribution, packages: Path) -> None:
    """Put into another environment what a package has installed, without fetching it again."""
    for name in {Path(file).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        with contextlib.suppress(FileExistsError):  # a namespace of several packages
            (packages / name).symlink_to(Path(str(package.locate_file(name))))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """The store of docker-compose.yml, less the container: its command, on a port of this machine."""
    program, *words = COMPOSE["services"]["store"]["command"]
    assert program == "valkey-server"
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in zip(*[iter(words)] * 2, strict=True)}
    directory = tmp_path / "store"
    directory.mkdir()
    store = StoreProcess(directory, port=str(free_port()), **options)
    yield store
    store.close()


def run(command: list[Any], **more: Any) -> str:
    """Run a command to its end and return what it said; fail with its words if it failed."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def is_healthy(programs: Path, variables: dict[str, str]) -> bool:
    """Run the health check of the image with the variables of the container."""
    program, *words = health_check()
    command = [programs / program, *words]
    return subprocess.run(command, env=variables, capture_output=True, timeout=LIMIT_S).returncode == 0


def is_ready(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=LIMIT_S).close()
    except urllib.error.HTTPError as refused:
        if refused.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        return False
    return True


def test_the_image_serves_and_is_healthy_without_its_store_too(
    environment_of_its_own: Path, store: StoreProcess, tmp_path: Path
) -> None:
    programs, port = environment_of_its_own, free_port()
    service = COMPOSE["services"]["crewel"]["environment"]
    address = service["CREWEL_STORAGE__URL"].replace("store:6379", f"127.0.0.1:{store.option('port')}")
    variables = environment() | service | {
        "CREWEL_STORAGE__URL": address,
        "CREWEL_HTTP__PORT": str(port),
        "CREWEL_STORAGE__DATA_DIR": str(tmp_path / "data"),
    }  # fmt: skip
    program, words = json.loads(instruction("ENTRYPOINT"))[0], json.loads(instruction("CMD"))
    assert not is_healthy(programs, variables)
    with subprocess.Popen(
        [programs / program, *words], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"ready http://0.0.0.0:{port}/cometd\n"
            assert is_healthy(programs, variables)
            store.kill()
            until(lambda: not is_ready(port))
            # A new container would not bring the store back, and would end the connections of all clients.
            assert is_healthy(programs, variables)
            store.start()
            until(lambda: is_ready(port))
        finally:
            server.send_signal(getattr(signal, instruction("STOPSIGNAL")))
        assert server.wait(LIMIT_S) == 0


def test_a_server_with_a_certificate_is_healthy(environment_of_its_own: Path, tmp_path: Path) -> None:
    """As in docs/how-to/deploying.md, "TLS without a proxy". The certificate does not name 127.0.0.1."""
    programs, port, certificate = environment_of_its_own, free_port(), tmp_path / "certificate.pem"
    trustme.CA().issue_cert("chat.example.org").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    variables = environment() | {
        "CREWEL_HTTP__PORT": str(port),
        "CREWEL_HTTP__TLS_CERT": str(certificate),
        "CREWEL_HTTP__TLS_KEY": str(certificate),
        "CREWEL_SECURITY__ALLOW_OPEN": "true",
        "CREWEL_STORAGE__DATA_DIR": str(tmp_path / "data"),
    }
    with subprocess.Popen(
        [programs / "crewel", "serve"], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready https://")
            assert is_healthy(programs, variables)
        finally:
            server.terminate()


@pytest.mark.parametrize("command", ["docker_run", "buildah_run"])
def test_the_trial_of_a_release_gives_the_image_what_it_needs_to_start(
    environment_of_its_own: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make release` runs these commands where there is an engine."""
    monkeypatch.syspath_prepend(ROOT / "tools" / "release")
    words = getattr(importlib.import_module("trials"), command)("crewel:1", 8080)
    given = dict(pair.split("=", 1) for option, pair in itertools.pairwise(words) if option == "--env")
    here = {"CREWEL_STORAGE__DATA_DIR": str(tmp_path / "data"), "CREWEL_HTTP__PORT": str(free_port())}
    with subprocess.Popen(
        [environment_of_its_own / "crewel", *json.loads(instruction("CMD"))],
        cwd=tmp_path,
        env=environment() | given | here,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready http://")
        finally:
            server.terminate()


def test_the_image_has_the_store_of_its_own_too(environment_of_its_own: Path, tmp_path: Path) -> None:
    found = run([environment_of_its_own / "crewel", "doctor", "--json"], cwd=tmp_path, env={})
    assert "valkey" in json.loads(found.splitlines()[0])["found"]


def test_the_variables_of_image_and_service_are_settings() -> None:
    given = {**environment(), **COMPOSE["services"]["crewel"]["environment"]}
    names = {name.removeprefix("CREWEL_").replace("__", ".").lower() for name in given if name.startswith("CREWEL_")}
    assert names <= set(declared())


def test_the_image_runs_without_rights_and_keeps_its_data_in_a_volume() -> None:
    # By number: Kubernetes refuses a name where it has to see that it is not root.
    assert int(instruction("USER")) > 0
    assert f"--uid {instruction('USER')} " in DOCKERFILE
    assert instruction("VOLUME") == environment()["CREWEL_STORAGE__DATA_DIR"] == "/data"
    assert instruction("EXPOSE") == environment()["CREWEL_HTTP__PORT"]
    assert ":/data" in COMPOSE["services"]["crewel"]["volumes"][0]


def test_the_guide_runs_an_image_that_its_commands_have_made() -> None:
    """Otherwise the engine fetches an image of that name from a registry."""
    guide = (ROOT / "docs" / "how-to" / "docker.md").read_text("utf-8")
    (options,) = re.findall(r"^docker run (.*)$", guide.replace("\\\n", " "), re.MULTILINE)
    image = options.split()[-1]
    assert f"\ndocker build --tag {image} .\n" in guide
    loaded = f"docker load --input crewel-image-{VERSION}.tar\ndocker tag crewel:{VERSION} {image}\n"
    assert loaded in guide, "of a release, which has its version as its tag"


def test_services_refer_to_what_there_is() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert service.get("profiles", []) in ([], ["spark"], ["cluster"], ["cells"]), (
            "what starts by itself is the server and its store"
        )
        sources = {mount.partition(":")[0] for mount in service["volumes"]}
        assert all((ROOT / each).exists() for each in sources if each.startswith("./"))
        assert {each for each in sources if not each.startswith("./")} <= set(COMPOSE["volumes"])
    assert services["crewel"]["depends_on"]["store"]["condition"] == "service_healthy"
    assert services["store"]["healthcheck"]["test"][0] == "CMD"


def test_an_open_server_is_published_to_this_machine_only() -> None:
    service = COMPOSE["services"]["crewel"]
    assert service["environment"]["CREWEL_SECURITY__ALLOW_OPEN"] == "true"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("command", [["docker", "compose"], ["docker-compose"]], ids=" ".join)
def test_compose_understands_its_file_where_there_is_one(command: list[str]) -> None:
    """Where there is none, the tests above have to do."""
    found = shutil.which(command[0])
    if (
        found is not None
        and subprocess.run([*command, "version"], capture_output=True, timeout=LIMIT_S).returncode == 0
    ):
        for profiles in ([], ["--profile", "spark"], ["--profile", "cluster"], ["--profile", "cells"]):
            run([*command, "--file", ROOT / "docker-compose.yml", *profiles, "config", "--quiet"])


def test_what_the_image_is_made_of_is_sent_to_the_engine() -> None:
    """.dockerignore is an allow-list; each COPY that names something of the checkout needs its line."""
    allowed = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    for words in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for name in words.split()[:-1]:
            assert (ROOT / name).exists(), name
            assert Path(name).parts[0] in allowed, name

"""That a wheel, made from a source distribution, holds what a checkout has: the package, the extensions, and the pages."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.house.source import ROOT, tracked_files
from tests.house.wheels import built, copied, source_of
from tests.shared_files import made_once

pytestmark = pytest.mark.server

SUFFIXES = {".py", ".js", ".html", ".css", ".svg", ".lua", ".properties"}


@pytest.fixture
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what a wheel is made from, because a build writes beside its sources."""
    return copied(tmp_path_factory.mktemp("checkout"))


def expected() -> set[str]:
    """Return the names that the installed files of the repository have."""
    names = set()
    for file in tracked_files():
        path = file.relative_to(ROOT)
        if path.parts[0] == "app":
            names.add(path.relative_to("app").as_posix())
        elif path.parts[0] in {"extensions", "pipeline", "static"} and path.suffix in SUFFIXES:
            names.add(f"crewel/{path.as_posix()}")
    return names


def test_a_wheel_holds_the_package_the_extensions_and_the_pages(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert expected() <= held
    assert "crewel/static/vendor/cometd/cometd.js" in held
    assert {f"crewel/static/{name}" for name in ("package.json", "package-lock.json")} <= held
    assert not [name for name in held if "node_modules" in name]


def test_a_source_distribution_is_refused_without_the_browser_client(checkout: Path) -> None:
    shutil.rmtree(checkout / "static" / "vendor")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        source_of(checkout)
    assert "static/vendor/cometd/cometd.js is missing" in refused.value.stdout + refused.value.stderr


@pytest.fixture(scope="module")
def clientless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory into which a checkout without the browser client is installed: `crewel` and nothing else."""

    def make(directory: Path) -> None:
        checkout = copied(tmp_path_factory.mktemp("checkout"))
        shutil.rmtree(checkout / "static" / "vendor")
        built(checkout, directory)

    (made,) = made_once(tmp_path_factory, "clientless", make).iterdir()
    installed = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(made).extractall(installed)
    return installed


def crewel(installed: Path, *arguments: str, path: str = os.environ["PATH"]) -> subprocess.Popen[str]:
    """Run a command of the installed package."""
    return subprocess.Popen(
        [sys.executable, "-c", "from crewel.cli.main import run; run()", *arguments],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_server_without_the_browser_client_serves_and_its_chat_names_the_command_that_fetches_it(
    clientless: Path,
) -> None:
    with crewel(clientless, "serve", "--port", "0", "--set", "storage.enabled=false") as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[1].removesuffix("/cometd")
            with urlopen(f"{address}/chat/", timeout=10) as response:
                chat = response.read().decode()
            with pytest.raises(HTTPError, match="404") as missing:
                urlopen(f"{address}/static/vendor/cometd/cometd.js", timeout=10)
            with missing.value:
                assert "`crewel pages` fetches it" in missing.value.read().decode()
        finally:
            server.terminate()
    assert "<code>crewel pages</code>" in chat
    assert "/static/chat/chat.js" not in chat


def test_a_missing_npm_is_said_in_one_line(clientless: Path, tmp_path: Path) -> None:
    with crewel(clientless, "pages", path=str(tmp_path)) as command:
        _, said = command.communicate(timeout=60)
    assert command.returncode == 1
    assert said.startswith("crewel: npm is not found: install Node.js with npm")
    assert len(said.splitlines()) == 1


def test_one_command_fetches_the_browser_client(clientless: Path) -> None:
    with crewel(clientless, "pages") as command:
        printed, said = command.communicate(timeout=120)
    fetched = clientless / "crewel" / "static" / "vendor"
    assert (command.returncode, said) == (0, "")
    assert str(fetched) in printed
    assert listed(fetched) == listed(ROOT / "static" / "vendor")
    shutil.rmtree(fetched)


def listed(directory: Path) -> set[Path]:
    return {file.relative_to(directory) for file in directory.rglob("*")}


def test_the_pages_are_found_in_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    script = "from crewel import pages; print(pages.STATIC); print(pages.EXTENSIONS['update'].parent)"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ended.stdout.split() == [str(tmp_path / "crewel" / "static"), str(tmp_path / "crewel" / "extensions")]

"""That the Java client and the example projects in Node.js and Java pass their own tests, and that the page of the Java client
can be followed; `make test-examples` installs what they need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from crewel.client import Client
from tests.conftest import StartServer
from tests.functional.test_tutorials import HOW_TO, follow
from tests.house.source import ROOT
from tests.terminals import blocks
from tests.upgrade.releases import Release, earlier  # noqa: F401 - a fixture

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

DOWNLOAD_S = 600.0
"""How long a command may take: the first one of Maven downloads all that CometD and Jetty need."""
MAVEN = ("mvn", "--batch-mode", "--no-transfer-progress")
PROJECTS = {
    "examples/node": (("npm", "test"), "# pass 2"),
    "examples/java": ((*MAVEN, "test"), "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0"),
    "clients/java": ((*MAVEN, "-Prelease", "verify"), "Failures: 0, Errors: 0, Skipped: 0"),
    "examples/java-worker": ((*MAVEN, "test"), "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0"),
}


def run(directory: str, *command: str) -> str:
    """Return what a command prints, which ends well."""
    assert shutil.which(command[0]), f"{command[0]} is missing: `make test-examples` installs it"
    environment = os.environ | {"CREWEL": str(Path(sys.executable).with_name("crewel"))}
    ended = subprocess.run(command, cwd=ROOT / directory, env=environment, capture_output=True, text=True, timeout=880)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended.stdout


@pytest.fixture(scope="session")
def java_client() -> None:
    """The Java client where Maven finds it."""
    run("clients/java", *MAVEN, "--quiet", "-DskipTests", "install")


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_passes(project: str, request: pytest.FixtureRequest) -> None:
    if project == "examples/java-worker":
        request.getfixturevalue("java_client")
    command, passed = PROJECTS[project]
    assert passed in run(project, *command)


def test_the_java_client_of_a_release_passes_its_tests_at_this_server(earlier: Release) -> None:  # noqa: F811
    assert "Failures: 0, Errors: 0, Skipped: 0" in run(str(earlier.tree / "clients/java"), *MAVEN, "test")


@pytest.mark.usefixtures("java_client")
def test_the_page_of_the_java_client_can_be_followed(tmp_path: Path) -> None:
    (tmp_path / "clients").symlink_to(ROOT / "clients")
    follow(HOW_TO / "java.md", tmp_path, DOWNLOAD_S)


EXCERPT = """
import io.crewel.client.*;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.cometd.client.BayeuxClient;

class Sample{number} {{
    interface Issuer {{ String token(); }}

    void sample(BayeuxClient client, Publisher publisher, Issuer issuer) {{
        {text}
    }}
}}
"""


@pytest.mark.usefixtures("java_client")
def test_the_excerpts_in_java_compile(tmp_path: Path) -> None:
    """Those of the pages of the client and of scheduled messages, with the names that they speak of."""
    run("examples/java-worker", *MAVEN, "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={tmp_path}")
    pages = (HOW_TO / "java.md", HOW_TO / "scheduled-messages.md")
    found = [each.text for page in pages for each in blocks(page) if each.language == "java" and not each.is_file]
    assert len(found) >= 5
    for number, text in enumerate(found):
        (tmp_path / f"Sample{number}.java").write_text(EXCERPT.format(number=number, text=text))
    files = sorted(map(str, tmp_path.glob("*.java")))
    run(".", "javac", "-Werror", "-cp", f"{tmp_path}/*", "-d", str(tmp_path / "classes"), *files)


@contextmanager
def running(page: Path, url: str, directory: Path) -> Iterator[IO[str]]:
    """What the first program in Java on a page prints, with what the example worker depends on. It does not end by itself."""
    jars = directory / "jars"
    run("examples/java-worker", *MAVEN, "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    block = next(each for each in blocks(page) if each.language == "java" and "static void main" in each.text)
    address, source = "http://127.0.0.1:8080/cometd", directory / "Program.java"
    assert address in block.text
    source.write_text(block.text.replace(address, url))
    with subprocess.Popen(("java", "-cp", f"{jars}/*", source), stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            yield program.stdout
        finally:
            program.kill()


@pytest.mark.usefixtures("java_client")
def test_the_java_example_of_the_readme_hears_itself(start_server: StartServer, tmp_path: Path) -> None:
    with running(ROOT / "README.md", start_server().url, tmp_path) as lines:
        assert sorted(re.findall(r"\w+=\w+", lines.readline())) == ["chat=hello", "user=eve"]


@pytest.mark.usefixtures("java_client")
async def test_the_java_example_of_presence_sees_who_comes_and_goes(start_server: StartServer, tmp_path: Path) -> None:
    url = start_server().url
    with running(HOW_TO / "presence.md", url, tmp_path) as lines:
        assert [lines.readline() for _ in range(2)] == ["JOIN joe\n", "[Member[id=joe, sessions=1, data={name=Joe}]]\n"]
        async with Client(url, name="ann/1") as ann, ann.presence("/room") as presence:
            assert sorted(presence.members) == ["ann", "joe"]
        assert [lines.readline() for _ in range(2)] == ["JOIN ann\n", "LEAVE ann\n"]

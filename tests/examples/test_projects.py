"""That the Java client and the example projects in Node.js and Java pass their own tests, and that the page of the Java client
can be followed; `make test-examples` installs what they need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.functional.test_tutorials import HOW_TO, follow
from tests.house.source import ROOT
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


@pytest.mark.usefixtures("java_client")
def test_the_java_example_of_the_readme_hears_itself(start_server: StartServer, tmp_path: Path) -> None:
    """With what the example worker depends on. The client does not end by itself."""
    jars = tmp_path / "jars"
    run("examples/java-worker", *MAVEN, "--quiet", "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    found = re.search(r"```java\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found
    source, address = tmp_path / "Hello.java", "http://127.0.0.1:8080/cometd"
    assert address in found[1]
    source.write_text(found[1].replace(address, start_server().url))
    with subprocess.Popen(("java", "-cp", f"{jars}/*", source), stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert sorted(re.findall(r"\w+=\w+", program.stdout.readline())) == ["chat=hello", "user=eve"]
        finally:
            program.kill()

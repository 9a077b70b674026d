"""The profile `spark` of docker-compose.yml: that its processes find one another, and leave reports room beside the resident
job. tests/house/test_container.py has compose itself read the file, where there is one."""

from __future__ import annotations

from typing import Any

import yaml
from typer.testing import CliRunner

from crewel.pipeline import cli
from tests.server_process import ROOT

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
GIGABYTE = 1024
EXECUTOR_MB = 1024
"""What Spark gives an executor that asks for nothing."""


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def settings() -> dict[str, str]:
    """Spark's settings of the resident job."""
    given = (word.removeprefix("--spark=") for word in SERVICES["pipeline"]["command"] if word.startswith("--spark="))
    return dict(text.split("=", 1) for text in given)


def megabytes(text: str) -> int:
    return int(text[:-1]) * (GIGABYTE if text.endswith("g") else 1)


def test_the_commands_are_those_of_the_pipeline() -> None:
    program, group, *words = SERVICES["pipeline"]["command"]
    assert (program, group) == ("crewel", "pipeline")
    ended = CliRunner().invoke(cli.app, [*words, "--help"])
    assert ended.exit_code == 0, ended.output


def test_all_of_them_know_the_store_the_server_and_the_master() -> None:
    master, worker, job = (SERVICES[name] for name in ("spark-master", "spark-worker", "pipeline"))
    for service in (master, worker, job):
        assert service["profiles"] == ["spark"]
        assert service["build"]["target"] == "pipeline"
        assert service["environment"] == job["environment"]
        assert service["volumes"] == job["volumes"], "the tables are where all of them see them"
    environment = job["environment"]
    assert environment["CREWEL_STORAGE__URL"] == SERVICES["crewel"]["environment"]["CREWEL_STORAGE__URL"]
    address = environment["CREWEL_PIPELINE__MASTER"]
    assert address == worker["command"][-1]
    assert address == f"spark://{after(master['command'], '--host')}:{after(master['command'], '--port')}"
    assert settings()["spark.driver.host"] == job["hostname"]


def test_a_report_finds_a_core_and_memory_beside_the_resident_job() -> None:
    worker = SERVICES["spark-worker"]
    assert int(settings()["spark.cores.max"]) < int(after(worker["command"], "--cores"))
    used = megabytes(settings()["spark.executor.memory"])
    assert used + EXECUTOR_MB <= megabytes(after(worker["command"], "--memory"))
    assert megabytes(after(worker["command"], "--memory")) < megabytes(worker["mem_limit"])
    assert megabytes(settings()["spark.driver.memory"]) < megabytes(SERVICES["pipeline"]["mem_limit"])

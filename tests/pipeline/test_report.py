"""The report of a real server: from rejections to the page that names their cause."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs.report import Options, run
from tests.admin.desk import SETS, Receiver, publish
from tests.conftest import StartServer
from tests.store_process import until

NAMES = ["client/ann/1", "client/joe/1"]


def test_the_page_names_the_message_that_all_rejected_and_the_command_that_removes_it(
    spark: SparkSession, address: Address, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*SETS, f"storage.url={address.url}", f"storage.prefix={address.prefix}")
    receivers = [Receiver(server).be(name.removeprefix("client/")) for name in NAMES]
    for each in receivers:
        each.subscribe("/orders")
    publish(server, "/orders", 4)
    for each in receivers:
        messages = each.take_all()
        each.reject(messages[:1])
        each.accept(messages[1:])
    with address.client() as client:
        until(lambda: client.xlen(address.keys.dead) == len(NAMES))
    page = tmp_path / "report.html"
    result = run(spark, Options(address=address, directory=tmp_path, html=page))
    assert (result.letters, result.poison, result.sick) == (2, 1, [])
    told = json.loads((tmp_path / "report.json").read_text())
    (row,) = told["poison"]
    assert (row["channel"], row["names"], row["why"]) == ("/orders", NAMES, "2 receivers rejected it, none took it")
    assert [(each["cause"], each["letters"]) for each in told["triage"]] == [("message", 1), ("message", 1)]
    assert sum(each["letters"] for each in told["deaths"]) == 2
    assert (told["failing_channels"], told["times"]) == ([], [])
    assert f"crewel dead-letters discard {' '.join(row['dead_letters'])}" in page.read_text()
    assert len(row["dead_letters"]) == 2

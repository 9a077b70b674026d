"""A test that runs out of time in a call of Java leaves a session that works for the tests after it."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.conftest import drop_connection


def _out_of_time(*_: object) -> None:
    pytest.fail("out of time")


def _cut_off_call(timer: threading.Timer, java: Any) -> None:
    timer.start()
    java.Thread.sleep(60_000)


def test_the_answer_to_a_call_that_was_cut_off_is_not_taken_for_that_to_the_next(spark: SparkSession) -> None:
    assert spark._jvm is not None
    java = spark._jvm.java.lang
    before = signal.signal(signal.SIGUSR1, _out_of_time)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with pytest.raises(pytest.fail.Exception) as _cut_off:  # whose frames keep the connection
            _cut_off_call(timer, java)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    drop_connection()
    assert java.Integer.parseInt("17") == 17

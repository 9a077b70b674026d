"""What Spark starts its processes of Python from: it imports what each of them needs, once, and they share its memory.

python -m crewel.pipeline.worker_daemon pyspark.worker
"""

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import redis
from pyspark import daemon

from crewel.pipeline.source import batch_reader

SHARED = (np, orjson, pa, pc, redis, batch_reader)
"""Modules that are there before a process is forked."""

if __name__ == "__main__":
    daemon.manager()

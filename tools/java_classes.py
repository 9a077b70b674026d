"""Write pipeline/java_classes.gz again, after a change of Spark's version: which classes Java loads in the commands.

    make java-classes        two to four minutes

A store of its own holds facts as `bench/jobs.py` makes them.
"""

import gzip
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
from first_batches import Command, filled  # noqa: E402 - which the paths above have

from crewel.pipeline.class_archive import CLASSES  # noqa: E402
from crewel.pipeline.java_startup import LOCAL, java_options  # noqa: E402

QUERY = "SELECT code, count(*), max(ms) FROM letters JOIN fact_ended USING (code) GROUP BY ALL ORDER BY 1"
COMMANDS = {
    2000: (
        ("live", "--trigger", "0.5"),
        ("audit",),
        ("report", "--html", "report.html"),
        ("query", QUERY),
        ("redrive", "--where", "error_code LIKE 'user.%'", "--dry-run"),
    ),
    60_000: (("backfill",), ("compact", "--keep", "0"), ("report",)),
}
"""By the number of entries: few, and so many that Spark compiles programs for them."""


def lines() -> Iterator[str]:
    """Yield the lines with which Java names what it has loaded in each command."""
    for entries, commands in COMMANDS.items():
        with filled(entries) as (store, tables):
            names = tables.parent / "classes.txt"
            java = f"spark.driver.extraJavaOptions={java_options('OFF')} {LOCAL} -XX:DumpLoadedClassList={names}"
            for words in commands:
                line = (*words, "--spark", java, "--spark", "spark.driver.defaultJavaOptions=-Xshare:off")
                command = Command(store.url, tables, ROOT, *line)
                if words[0] == "live":
                    for job in ("live", "holdbacks"):
                        command.wait_for(tables / "checkpoints" / job / "v1" / "commits" / "0")
                else:
                    with suppress(AssertionError):  # the audit ends with 1 for what these facts leave out
                        command.wait()
                command.end()
                yield from names.read_text().splitlines()


def is_usual(line: str) -> bool:
    """Whether a line names a class of a jar or of Java itself: those of other loaders are made at each start."""
    return not line.startswith(("#", "@")) and " source: " not in line


if __name__ == "__main__":
    names = sorted({line.partition(" id: ")[0] for line in lines() if is_usual(line)})
    CLASSES.write_bytes(gzip.compress("".join(f"{name}\n" for name in names).encode(), mtime=0))

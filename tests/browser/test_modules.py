"""The chat's modules that need no page, under Node."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def test_modules_without_a_page():
    files = sorted(str(path) for path in HERE.glob("*.test.mjs"))
    assert files
    done = subprocess.run(["node", "--test", *files], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

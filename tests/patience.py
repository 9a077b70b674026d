"""How much longer a limit of time is on a machine that has other work: tests that run beside this one, say."""

import os


def patience() -> float:
    """What to multiply a limit by that holds for a test with the machine to itself; at least the number of testers."""
    testers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1.0, testers, os.getloadavg()[0] / (os.cpu_count() or 1))

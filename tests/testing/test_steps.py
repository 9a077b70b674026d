"""That time moves from timer to timer, also on a server with hardly any timers."""

import pytest

from crewel.testing import Server
from crewel.testing.instance import Instance

pytestmark = pytest.mark.server


@pytest.mark.crewel(settings={"http.fast_lane": False})
def test_every_sweep_of_five_minutes_happens(crewel: Server[Instance]) -> None:
    sweeps: list[float] = []

    def count(instance: Instance) -> None:
        sweep = instance.broker.sweeper.sweep
        instance.broker.sweeper.sweep = lambda: (sweeps.append(instance.now()), sweep())[1]  # type: ignore[method-assign]

    crewel.call(count)
    crewel.advance("5m")
    assert len(sweeps) >= 250  # each waits a second of this time, and a little of the real one
    assert sweeps == sorted(sweeps)

"""Whose fault planted dead letters are: precision and recall of the causes, over mixtures whose truth is known.

FAULTS=full draws the mixtures three times.
"""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from crewel.pipeline.few_rows import keep
from crewel.pipeline.transformations.causes import causes, of_ids
from crewel.pipeline.transformations.poison import poison
from tests.faults.conftest import IS_FULL
from tests.pipeline.planted import COMPUTED, plant

LEAST = 0.95
SEEDS = (1, 2, 3) if IS_FULL else (1,)

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cause_of_each_planted_dead_letter_is_found(spark: SparkSession, seed: int) -> None:
    scene, truth = plant(seed)
    caused = causes(scene.tables(spark), keep)
    rows = of_ids(caused).collect()
    found = {(row["message_id"], row["receiver"]): row["cause"] for row in rows}
    pairs = Counter((cause, found.get(key, "none")) for key, cause in truth.items())
    by_mixture = Counter(
        (key[1].removeprefix("client/").rstrip("0123456789/"), cause, found.get(key, "none"))
        for key, cause in truth.items()
    )
    print(*sorted(by_mixture.items()), sep="\n")
    assert {name for name, _, _ in by_mixture} == COMPUTED.keys()
    for cause in ("message", "receiver", "channel"):
        right = pairs[cause, cause]
        planted = sum(number for (true, _), number in pairs.items() if true == cause)
        named = sum(number for (_, told), number in pairs.items() if told == cause)
        print(f"{cause}: {planted} planted, precision {right / named:.3f}, recall {right / planted:.3f}")
        assert right >= LEAST * named, (cause, pairs)
        assert right >= LEAST * planted, (cause, pairs)
    # What an operator is advised to discard was rejected by most that got it.
    named_poison = poison(caused).collect()
    assert named_poison
    assert all(row["receivers"] > row["takers"] for row in named_poison)
    poisoned = {message for (message, _), cause in truth.items() if cause == "message"}
    assert {row["message_id"] for row in named_poison} <= poisoned

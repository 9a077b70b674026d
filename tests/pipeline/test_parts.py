import pytest

from crewel.pipeline.parts import Live, fill, finished, live, visible


@pytest.mark.parametrize(
    ("there", "shown"),
    [
        ([], []),
        (["live.1.2", "live.1.10", "live.1.1"], ["live.1.1", "live.1.2", "live.1.10"]),
        (["live.1.1", "live.1.2", "live.1.1-2"], ["live.1.1-2"]),
        (["live.1.1-2", "live.1.3", "live.1.1-3", "live.1.4"], ["live.1.1-3", "live.1.4"]),
        (["live.1.1-2", "live.2.1"], ["live.1.1-2", "live.2.1"]),
        (["live.1.0-9", "live.1.2-3", "live.1.12", "live.1.8"], ["live.1.0-9", "live.1.12"]),
        (["fill.5", "live.1.1"], ["fill.5", "live.1.1"]),
    ],
)
def test_a_reader_takes_what_no_other_part_holds(there: list[str], shown: list[str]) -> None:
    assert visible(there) == shown


def test_names_tell_what_they_were_made_of() -> None:
    assert live(3, 17) == "live.3.17"
    assert Live.parse("live.3.17") == Live(3, 17, 17)
    assert Live.parse("live.3.17-20") == Live(3, 17, 20)
    assert str(Live(3, 17, 20)) == "live.3.17-20"
    assert Live.parse(fill(5)) is None


def test_the_newest_batch_may_be_written_again_and_is_not_finished() -> None:
    there = ["live.1.1", "live.1.2", "live.1.3", "fill.9"]
    assert finished(there, Live(1, 3, 3)) == [Live(1, 1, 1), Live(1, 2, 2)]
    assert finished(there, Live(2, 0, 0)) == [Live(1, 1, 1), Live(1, 2, 2), Live(1, 3, 3)]
    assert finished(there, None) == []

"""Dead letters that are gone are known to be, also if no page was open: they are looked at with the samples."""

from __future__ import annotations

import pytest

from crewel.admin.administration import Administration
from crewel.broker.dead_letters.redrive import Chosen, Limits
from tests.broker.stored_world import Receiver, StoredWorld, failed, store

pytestmark = pytest.mark.store


def test_dead_letters_that_end_while_no_page_is_open_are_over(stored: StoredWorld) -> None:
    admin = Administration(stored.broker)
    joe = Receiver(stored).started("/a", name="joe/1", settle="message")
    store(stored, "/a", 1, 2)
    joe.take(*(failed(each, "user.update.error") for each in joe.take()))
    assert len(stored.letters()) == 2
    stored.wait(admin.metrics_history.count_sessions())
    for _ in range(2):
        assert admin.past_troubles.over() == []
        stored.wait(admin.broker.dead_letters.redrive.discard(Chosen(), Limits(1), "ann"))
        admin.metrics_history._count_at = 0.0  # the next sample
        stored.wait(admin.metrics_history.count_sessions())
    (past,) = admin.past_troubles.over()
    assert (past.kind, past.name, past.text, past.letters) == ("letters", "client/joe/1", "user.update.error", 2)

"""Tests that need not hold on several nodes in the place of one server (CREWEL_TEST_NODES=3), each with its reason.

There, each connection reaches one of them at random, so a test here may also pass. All others have to.
"""

from __future__ import annotations

from typing import Final

_ASYNCHRONOUS: Final = (
    "a publish is answered when it is stored, or sent to the other nodes; what has reached the session's node by then is not"
    " said"
)
_FIGURES: Final = "it counts what one server has, and each node has that"
_PORT: Final = "it compares the port of one connection with that of another one"
_AT_ONCE: Final = (
    "of logins that ask for one new name at the same moment at two nodes, the later ones are refused with 503, and their"
    " clients shake hands again a second later"
)

_CLOSED: Final = (
    "the node of a socket tells the session's node that it has closed; a message of a third node may come before, and goes to"
    " the closed socket, as one does that is under way to it"
)

_PER_NODE: Final = "the sessions of one browser are counted at each node (decision 0025), and these may be at several"

REASONS: Final = {
    "test_browsers.py::test_the_second_tab_is_told_to_poll": _PER_NODE,
    "test_connects.py::test_what_came_while_no_connect_was_there_comes_with_the_next_at_once": _ASYNCHRONOUS,
    "test_connects.py::test_what_is_queued_goes_out_before_the_disconnect_reply": _ASYNCHRONOUS,
    "test_origins.py::test_the_own_origin_is_the_host_that_was_asked_for": _PORT,
    "test_origins.py::test_listed_origins_may": _PORT,
    "test_pages.py::test_the_version_is_said_everywhere_and_in_one_place": _FIGURES,
    "test_recovery.py::test_a_stream_that_was_deleted_meanwhile_is_told": _ASYNCHRONOUS,
    "test_recovery.py::test_all_that_was_missed_comes_in_order": _ASYNCHRONOUS,
    "test_recovery.py::test_the_last_position_goes_on_where_it_was": _ASYNCHRONOUS,
    "test_recovery.py::test_what_is_published_meanwhile_follows_without_a_gap_and_without_a_repeat": _ASYNCHRONOUS,
    "test_recovery.py::test_what_the_history_has_lost_is_told_and_nothing_old_comes": _ASYNCHRONOUS,
    "test_seed_001.py::test_exactly_one_session_has_each_message": _ASYNCHRONOUS,
    "test_seed_001.py::test_the_queue_ends_when_nobody_comes_for_long": _ASYNCHRONOUS,
    "test_seed_002.py::test_each_message_has_its_own_life_and_priority": _ASYNCHRONOUS,
    "test_sessions.py::test_a_session_that_does_not_acknowledge_is_taken_over_with_its_queue": _ASYNCHRONOUS,
    "test_sessions.py::test_an_anonymous_session_comes_back_with_its_resume": _ASYNCHRONOUS,
    "test_sessions.py::test_bounds_of_the_burst_and_of_the_queue_are_obeyed": _ASYNCHRONOUS,
    "test_sessions.py::test_of_many_who_begin_at_once_one_makes_the_session": _AT_ONCE,
    "test_sessions.py::test_of_many_who_come_at_once_one_after_the_other_has_it": _ASYNCHRONOUS,
    "test_sessions.py::test_what_was_not_acknowledged_goes_to_the_new_client": _ASYNCHRONOUS,
    "test_subscribing.py::test_a_filter_and_a_history_in_one_subscribe": _ASYNCHRONOUS,
    "test_websocket.py::test_after_the_move_back_messages_wait_for_the_poll": _CLOSED,
    "test_websocket.py::test_a_connect_over_http_takes_the_place_of_one_held_on_a_socket": _ASYNCHRONOUS,
}
"""By module and function."""

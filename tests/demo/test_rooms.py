"""The chat's table of rooms."""

from crewel.demo import Bounds, Rooms


def test_names_are_listed_in_the_order_they_came():
    rooms = Rooms()
    assert rooms.enter("demo", "s1", "sue")
    assert rooms.enter("demo", "s2", "joe")
    assert rooms.names("demo") == ["sue", "joe"]
    assert rooms.sessions_in("demo") == ["s1", "s2"]


def test_entering_again_under_the_same_name_changes_nothing():
    rooms = Rooms()
    rooms.enter("demo", "s1", "joe")
    assert not rooms.enter("demo", "s1", "joe")


def test_entering_again_under_another_name_renames():
    rooms = Rooms()
    rooms.enter("demo", "s1", "joe")
    assert rooms.enter("demo", "s1", "joseph")
    assert rooms.names("demo") == ["joseph"]


def test_two_sessions_of_one_name_are_listed_once_and_both_addressed():
    rooms = Rooms()
    rooms.enter("demo", "s1", "joe")
    assert not rooms.enter("demo", "s2", "joe")
    assert rooms.names("demo") == ["joe"]
    assert rooms.sessions_named("demo", ["joe"]) == ["s1", "s2"]


def test_leaving_tells_the_name_and_an_empty_room_is_forgotten():
    rooms = Rooms(Bounds(rooms=1))
    rooms.enter("demo", "s1", "joe")
    assert not rooms.has_place("other", "s2")
    assert rooms.leave("demo", "s1") == "joe"
    assert rooms.leave("demo", "s1") is None
    assert rooms.has_place("other", "s2")


def test_a_session_is_found_in_all_its_rooms():
    rooms = Rooms()
    rooms.enter("demo", "s1", "joe")
    rooms.enter("wool", "s1", "joseph")
    assert rooms.visited_by("s1") == ["demo", "wool"]
    assert rooms.name_of("wool", "s1") == "joseph"
    rooms.leave("demo", "s1")
    assert rooms.visited_by("s1") == ["wool"]


def test_a_full_room_keeps_its_members_and_takes_no_more():
    rooms = Rooms(Bounds(members=1))
    rooms.enter("demo", "s1", "joe")
    assert rooms.has_place("demo", "s1")
    assert not rooms.has_place("demo", "s2")


def test_one_session_cannot_fill_all_rooms():
    rooms = Rooms(Bounds(rooms_per_session=2))
    rooms.enter("a", "s1", "joe")
    rooms.enter("b", "s1", "joe")
    assert not rooms.has_place("c", "s1")
    assert rooms.has_place("a", "s1")


def test_names_of_an_unknown_room_are_none():
    rooms = Rooms()
    assert rooms.names("nowhere") == []
    assert rooms.name_of("nowhere", "s1") is None
    assert rooms.sessions_in("nowhere") == []
    assert rooms.sessions_named("nowhere", ["joe"]) == []
    assert rooms.visited_by("s1") == []

"""How the answers of several nodes become one."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.admin.merges import longest, merged
from crewel.admin.rest import ROUTES
from crewel.admin.route import document


@pytest.mark.parametrize(
    ("makers", "one"),
    [
        ({}, {"queued": 1, "names": ["a"]}),
        ({"queued": sum}, {"queued": 4, "names": ["a"]}),
        ({"queued": max, "names": longest}, {"queued": 3, "names": ["b", "c"]}),
        ({"blocked": any}, {"queued": 1, "names": ["a"]}),  # the first does not say it
    ],
)
def test_fields_are_made_of_what_all_say(makers: Any, one: dict[str, Any]) -> None:
    views = [{"queued": 1, "names": ["a"]}, {"queued": 3, "names": ["b", "c"], "blocked": True}]
    assert merged(views, views[0], **makers) == one


def test_a_node_that_does_not_say_a_field_does_not_count() -> None:
    views = [{"queued": 1, "killed": 2}, {"queued": 3}]
    assert merged(views, views[0], queued=sum, killed=sum) == {"queued": 4, "killed": 2}


def test_the_description_says_what_is_required_and_of_which_words() -> None:
    paths = document(ROUTES, "")["paths"]
    body = paths["/admin/api/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["what"]
    assert body["properties"]["what"]["enum"] == ["redrive", "discard", "drain"]
    (name,) = (each for each in paths["/admin/api/groups/{channel}"]["get"]["parameters"] if each["name"] == "name")
    assert name["required"] is True

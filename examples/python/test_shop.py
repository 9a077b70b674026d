"""The shop, tested with the fixtures of Crewel: a server for each test, in milliseconds."""

import pytest
from shop import shop

from crewel.client import RemoteCallFailedError

pytestmark = pytest.mark.crewel(services=[shop])


def test_an_order_gets_a_number_and_is_published(crewel, crewel_client):
    orders = crewel_client().subscribe("/shop/orders")
    taken = crewel_client().remote_call("/shop/order", {"item": "tea"})
    assert taken["item"] == "tea"
    assert orders.next().data == taken


def test_an_order_of_nothing_is_refused(crewel_client):
    with pytest.raises(RemoteCallFailedError):
        crewel_client().remote_call("/shop/order", {})


def test_a_watcher_is_back_after_a_night_without_network(crewel, crewel_client):
    watcher = crewel_client()
    orders = watcher.subscribe("/shop/orders")
    crewel.wait_for_clients(1)
    before = watcher.client_id
    crewel.advance("8h", keep_up=False)
    crewel.wait_for(lambda state: state.connected == 1 and state.clients[0].client_id != before)
    taken = crewel_client().remote_call("/shop/order", {"item": "coffee"})
    assert orders.next().data == taken

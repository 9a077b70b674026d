"""The consumer, tested on bad days: each test has an org of its own, which does what no org does on demand."""

import threading

import pytest
from salesforce_consumer import Consumer

ORDERS = "/event/Order__e"


@pytest.fixture
def handled(salesforce):
    """The orders that the consumer has handled. It runs, and is subscribed."""
    numbers = []
    consumer = Consumer(salesforce.login_url, ORDERS, lambda payload: numbers.append(payload["No__c"]))
    thread = threading.Thread(target=consumer.run)
    thread.start()
    salesforce.wait_for_subscriber(ORDERS)
    salesforce.publish(ORDERS, {"No__c": 1})
    salesforce.wait_for(lambda _: numbers == [1])
    yield numbers
    consumer.stop()
    salesforce.forget_sessions()  # which answers the connect that is held
    thread.join(30)


def test_a_lost_session_loses_no_order(salesforce, handled):
    salesforce.publish_while_away(ORDERS, {"No__c": 2})
    salesforce.wait_for(lambda _: handled == [1, 2])
    salesforce.assert_nothing_missed()


def test_a_revoked_token_loses_no_order(salesforce, handled):
    salesforce.revoke()
    salesforce.publish(ORDERS, {"No__c": 2})
    salesforce.wait_for(lambda _: handled == [1, 2])
    assert salesforce.handshakes >= 2


def test_a_response_that_breaks_off_loses_no_order(salesforce, handled):
    salesforce.script("next connect: half body")
    for number in (2, 3, 4):
        salesforce.publish(ORDERS, {"No__c": number})
    salesforce.wait_for(lambda _: handled[-1] == 4)
    salesforce.assert_nothing_missed()


def test_a_weekend_away_loses_only_what_salesforce_does_not_keep(salesforce, handled):
    salesforce.play("long-absence", ORDERS)
    salesforce.advance("80h", keep_up=False)
    salesforce.publish_while_away(ORDERS, {"No__c": "monday"})
    salesforce.wait_for(lambda _: handled[-1] == "monday")

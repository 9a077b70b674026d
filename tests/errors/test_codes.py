"""That the list of codes is complete, and what becomes of each when a receiver reports it."""

import re

import pytest

from crewel.delivery.outcomes import INTERNAL_ERROR, Outcome, outcome_of, reported_code
from crewel.errors import CODES, KNOWN, Category
from tests.house.source import modules, shown

LETTER, HOLDBACK, RETRY, SESSION_DEAD = Outcome.DEAD_LETTER, Outcome.HOLDBACK, Outcome.RETRY, Outcome.SESSION_DEAD

# All codes of xmlBlaster, and what each does here.
CONVERTED = [
    "internal",
    "internal.connectionFailure",
    "internal.disconnect",
    "internal.erase",
    "internal.get",
    "internal.illegalArgument",
    "internal.illegalState",
    "internal.interrupted",
    "internal.notImplemented",
    "internal.nullpointer",
    "internal.publish",
    "internal.publishArr",
    "internal.stop",
    "internal.subscribe",
    "internal.unSubscribe",
    "internal.unknown",
    "legacy",
    "resource",
    "resource.admin.unavailable",
    "resource.callbackServer.creation",
    "resource.cluster.circularLoop",
    "resource.cluster.notAvailable",
    "resource.configuration",
    "resource.configuration.address",
    "resource.configuration.connect",
    "resource.configuration.pluginFailed",
    "resource.configuration.sslSocket",
    "resource.configuration.xml",
    "resource.db.block",
    "resource.db.unavailable",
    "resource.db.unknown",
    "resource.exhaust",
    "resource.fileIO",
    "resource.fileIO.fileLost",
    "resource.maintenance",
    "resource.maintenance.drained",
    "resource.maintenance.skipped",
    "resource.noMoreSpace",
    "resource.outOfMemory",
    "resource.overflow.queue.bytes",
    "resource.overflow.queue.entries",
    "resource.temporary.unavailable",
    "resource.tooManyThreads",
    "resource.unavailable",
]
REPORTED = {
    "communication": RETRY,
    "communication.resource.temporary.unavailable": RETRY,
    "communication.noConnection": RETRY,
    "communication.timeout": RETRY,
    "communication.responseTimeout": RETRY,
    "communication.forceAsync": RETRY,
    "communication.noConnection.serverDeny": RETRY,
    "communication.noConnection.callbackServer.notavailable": RETRY,
    "communication.noConnection.polling": RETRY,
    "communication.noConnection.dead": RETRY,
    "communication.user.holdback": HOLDBACK,
    "user": LETTER,
    "user.update.holdback": HOLDBACK,
    "user.update.deadMessage": LETTER,
    "user.update.error": LETTER,
    "user.update.internalError": LETTER,
    "user.update.illegalArgument": LETTER,
    "user.update.security.authentication.accessDenied": LETTER,
    "user.clientCode": LETTER,
    "user.wrongApiUsage": LETTER,
    "user.configuration": LETTER,
    "user.version": LETTER,
    "user.configuration.maxSession": LETTER,
    "user.configuration.connectNoPubSess": LETTER,
    "user.configuration.identicalClient": LETTER,
    "user.security": LETTER,
    "user.security.authentication": SESSION_DEAD,
    "user.security.authentication.accessDenied": SESSION_DEAD,
    "user.security.authentication.accessDenied.unknownLoginName": SESSION_DEAD,
    "user.security.authentication.accessDenied.wrongPassword": SESSION_DEAD,
    "user.security.authentication.illegalArgument": SESSION_DEAD,
    "user.security.authentication.illegalDeviceId": SESSION_DEAD,
    "user.security.authentication.illegalDeviceType": SESSION_DEAD,
    "user.security.authentication.nfc_deviceType": SESSION_DEAD,
    "user.security.authentication.nfc_notRegistered": SESSION_DEAD,
    "user.security.authentication.nfc_imei": SESSION_DEAD,
    "user.security.authentication.inactive": SESSION_DEAD,
    "user.security.authentication.expired": SESSION_DEAD,
    "user.security.authorization.notAuthorized": LETTER,
    "user.illegalArgument": LETTER,
    "user.maxSizeExceed": LETTER,
    "user.publish": LETTER,
    "user.publish.readonly": LETTER,
    "user.presence.absent": LETTER,
    "user.schedule.absent": LETTER,
    "user.subscribe.id": LETTER,
    "user.subscribe.noCallback": LETTER,
    "user.oid.unknown": LETTER,
    "user.jdbc.invalid": LETTER,
    "user.connect": LETTER,
    "user.connect.multiple": LETTER,
    "user.notConnected": LETTER,
    "user.ptp.unknownSession": LETTER,
    "user.ptp.unknownDestination": LETTER,
    "user.ptp.unknownDestinationSession": LETTER,
    "user.ptp.denied": LETTER,
    "user.message.invalid": LETTER,
    "user.query.invalid": LETTER,
    "user.query.type.invalid": LETTER,
    "user.admin.invalid": LETTER,
}
# Not of two words or more: these become internal errors of the receiver.
MALFORMED = {"user", "communication"}


def test_the_list_has_every_code_once() -> None:
    codes = [each.code for each in KNOWN]
    assert sorted(codes) == sorted([*CONVERTED, *REPORTED])


@pytest.mark.parametrize("code", CONVERTED)
def test_reported_server_code_is_converted(code: str) -> None:
    assert reported_code(code) == INTERNAL_ERROR


@pytest.mark.parametrize("code", REPORTED)
def test_reportable_code_keeps_its_text(code: str) -> None:
    if code in MALFORMED:
        assert reported_code(code) == INTERNAL_ERROR
    else:
        assert reported_code(code) == code
        assert outcome_of(code) is REPORTED[code]


def test_a_code_of_the_receivers_own_keeps_its_text() -> None:
    assert reported_code("user.shop.outOfStock") == "user.shop.outOfStock"
    assert reported_code("user." + "x" * 124) == INTERNAL_ERROR


def test_each_code_says_what_it_means_and_of_what_category_it_is() -> None:
    for each in KNOWN:
        assert each.meaning.endswith(".")
        assert each.category in Category


def test_every_code_in_use_is_explained() -> None:
    assert CODES["user.illegalArgument"].startswith("A field has a wrong type")
    assert INTERNAL_ERROR in CODES
    assert all(text.endswith(".") for text in CODES.values())


def test_a_code_that_may_be_tried_again_is_nobodys_mistake() -> None:
    hopeful = {each.code for each in KNOWN if not each.is_final}
    assert "communication.noConnection" in hopeful
    assert "resource.unavailable" in hopeful
    assert {code for code in hopeful if code.startswith("user.")} == {"user.update.holdback"}


def test_every_code_that_the_program_answers_is_explained() -> None:
    """What a receiver alone says stands in `outcomes`; the client reads codes and makes none but one."""
    literal = re.compile(r'"((?:user|communication|resource|internal)(?:\.[A-Za-z]+)+)"')
    apart = ("app/crewel/errors/", "app/crewel/delivery/outcomes.py", "app/crewel/client/")
    unexplained = {
        f"{shown(file)}: {code}"
        for file in modules()
        if not shown(file).startswith(apart)
        for code in literal.findall(file.read_text("utf-8"))
        if code not in CODES
    }
    assert not unexplained

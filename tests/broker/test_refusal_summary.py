"""What the log says of refusals, and how often."""

import pytest

from crewel.broker.admission.refusal_summary import QUIET_S, RefusalSummary
from crewel.metrics import Metrics


def test_refusals_are_summed_up_with_their_settings_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    summary = RefusalSummary(metrics)
    summary.sweep(100.0)
    assert caplog.messages == []
    metrics.refused_channels["403"] = "/news"
    metrics.refused_publishes.update({"403": 2, "402": 5, "429": 7, "500": 1})
    metrics.limited["publishes_per_s"] += 7
    metrics.limited["max_pending_dead_letters"] += 1
    metrics.limited_last["max_pending_dead_letters"] = "address 192.0.2.1"
    metrics.refused_payloads.update({"too_large": 3, "malformed": 1})
    summary.sweep(101.0)
    assert caplog.messages == [
        "refused within the last minute: 2 publishes with 403 (security.policy or an authoriser does not grant them),"
        " the last on '/news';"
        " 1 publish with 500 (docs/reference/errors.md lists the codes); 7 operations by limits.publishes_per_s;"
        " 1 operation by limits.max_pending_dead_letters, the last of address 192.0.2.1;"
        " 3 requests as too_large (bayeux.max_message_bytes); 1 request as malformed"
    ]
    metrics.refused_payloads["too_large"] += 4
    summary.sweep(100.9 + QUIET_S)
    assert len(caplog.messages) == 1
    summary.sweep(101.0 + QUIET_S)
    assert caplog.messages[1:] == ["refused within the last minute: 4 requests as too_large (bayeux.max_message_bytes)"]
    summary.sweep(1000.0)
    assert len(caplog.messages) == 2

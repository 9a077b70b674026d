"""The secrets that clients get."""

import re

from crewel.broker.client_ids import new_secret


def test_secrets_are_long_plain_and_different() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(re.fullmatch("[a-z2-7]{26}", secret) for secret in secrets)  # 130 bits

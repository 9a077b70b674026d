"""Which transports client and server have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crewel.client.errors import NegotiationError


def common_transports(ours: Sequence[str], offered: object) -> list[str]:
    """Ours that the server lists, in our order; all of ours if it lists nothing.

    The handshake reply carries the server's full list, and choosing is the
    client's part (reference 1.3).

    Raises:
        NegotiationError: there is none.
    """
    if not isinstance(offered, list):
        return list(ours)
    common = [name for name in ours if name in offered]
    if not common:
        raise NegotiationError(f"the server offers {offered}, this client {list(ours)}")
    return common

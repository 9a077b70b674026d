"""The accounts that pay for what a session makes the server do for it: its address and its subject, as for rates."""

from __future__ import annotations

from collections.abc import Iterator

from crewel.broker.session import Session
from crewel.delivery.pending_dead_letters import Payers
from crewel.limits import Account


def charged(session: Session) -> Iterator[Account]:
    """The accounts whose budgets hold for the session; none of an operator, or at an address that has no rates."""
    if not (session.is_operator or session.is_exempt):
        for account in (session.account, session.subject_account):
            if account is not None:
                yield account


def payers_of(session: Session | None) -> Payers:
    """The names of these accounts: those of an address differ from those of a subject."""
    if session is None or session.is_operator or session.is_exempt:
        return ()
    address, subject = session.account, session.subject_account
    names = () if address is None or not address.name else (f"address {address.name}",)
    return names if subject is None else (*names, f"subject {subject.name}")

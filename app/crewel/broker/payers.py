"""The accounts that pay for what a session makes the server do for it: its address and its subject, as for rates; and one of
them for what it stores."""

from __future__ import annotations

from collections.abc import Iterator

from crewel.broker.session import Session
from crewel.delivery.pending_dead_letters import Payers
from crewel.limits import Account
from crewel.storage.account_shares import account_of_name, address_account, subject_account


def charged(session: Session) -> Iterator[Account]:
    """The accounts whose budgets hold for the session; none of an operator, or at an address that has no rates."""
    if not (session.is_operator or session.is_exempt):
        for account in (session.account, session.subject_account):
            if account is not None:
                yield account


def payers_of(session: Session | None) -> Payers:
    """The names of the accounts of a publisher: its address and its subject, or where rates do not hold for it, its subject, or
    the session alone. It waits while one of them has too many pending dead letters."""
    if session is None:
        return ()
    is_exempt = session.is_operator or session.is_exempt
    names = _names_of(session)
    names = names[1:] if is_exempt and session.account is not None else names
    return names or ((f"session {session.name}",) if session.name else ())


def payers_with_address(session: Session) -> Payers:
    """The names of the accounts that its dead letters are charged to. The first of them sends long requests one after the
    other. Its address is one also where rates do not hold for it, so that these accounts are few and have a limit. Other
    publishers there do not wait for its dead letters."""
    return _names_of(session) or payers_of(session)


def storing_account(publisher: Session) -> str:
    """The account that is charged for what a session stores: the subject that its token or the policy has proved, else its
    address. At an address without rates, which many share, it is the subject that it is called by."""
    if publisher.subject:
        return subject_account(publisher.subject)
    address = publisher.account
    named = account_of_name(publisher.name) if address is None or publisher.is_exempt else ""
    return named or address_account("" if address is None else address.name)


def _names_of(session: Session) -> Payers:
    """Those of an address differ from those of a subject."""
    address, subject = session.account, session.subject_account
    names = () if address is None else (address_account(address.name),)
    return names if subject is None else (*names, subject_account(subject.name))

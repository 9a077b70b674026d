"""Dead letters that the store has: notifications of new ones, and what operators do with them."""

from __future__ import annotations

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.dead_letters.bin import DeadLetterBin
from crewel.broker.dead_letters.notifier import DeadLetterNotifier
from crewel.broker.dead_letters.redrive import DeadLetterRedrive
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime


class DeadLetters:
    """The dead letters of one broker's store."""

    def __init__(self, runtime: Runtime, mailboxes: Mailboxes, addressing: Addressing) -> None:
        outbound = mailboxes.outbound
        self.notifier = DeadLetterNotifier(runtime, addressing.channels, outbound)
        self.redrive = DeadLetterRedrive(
            runtime, outbound.loader, addressing.names, addressing.groups, addressing.shared_queues
        )
        self.bin = DeadLetterBin(runtime)

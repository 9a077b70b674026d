"""The service `/service/cancelScheduled`: a publisher cancels what it has scheduled. The reply to its publish says whether."""

from __future__ import annotations

from typing import Any, Final

from crewel.bayeux import replies
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.admission.guard import Guard
from crewel.broker.handler_steps import Steps, result_of
from crewel.broker.payers import storing_account
from crewel.broker.publishing.publish_handler import not_stored
from crewel.broker.publishing.scheduler import Scheduler
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.errors import IllegalArgument, Refused, StoreError, coded
from crewel.storage.scheduled_messages import is_id

CANCEL_SERVICE: Final = "/service/cancelScheduled"
ABSENT: Final = "user.schedule.absent"
"""The code of what is not scheduled any more, or by another account."""


def offer_cancel(runtime: Runtime, guard: Guard, scheduler: Scheduler) -> None:
    """Let clients publish to it; `data` is the id that the reply to the scheduled publish has."""

    def cancel(session: Session, message: Message) -> Steps[Reply]:
        message_id = _id(message.data)
        account = storing_account(session)
        try:
            cancelled = yield from result_of(scheduler.cancel([message_id], session.name, account))
        except StoreError as error:
            raise not_stored(error) from error
        if not cancelled:
            # A message of another account has the answer of one that is gone.
            text = f"your account has no scheduled message {message_id}, or it has been published or cancelled"
            raise Refused(coded(ABSENT, message_id), ABSENT, text)
        return replies.ok(message)

    runtime.services.answers[CANCEL_SERVICE] = cancel
    guard.admit(CANCEL_SERVICE)


def _id(data: Any) -> str:
    text = str(data) if type(data) in (str, int) else ""
    if not is_id(text):
        raise IllegalArgument("data", "must be the id of a scheduled message")
    return text

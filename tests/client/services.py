"""The application that the client's tests talk to."""

from typing import Any

from crewel import GRANT, Accepted, Deny, Message, Operation, RemoteCallError, Service, Session
from crewel.bayeux.channel import Channel

service = Service("client-tests")


@service.remote_call("/echo")
def echo(session: Session, data: Any) -> Any:
    """Return what was sent."""
    return data


@service.remote_call("/fail")
def fail(session: Session, data: Any) -> Any:
    """Fail, with what was sent as the reason."""
    raise RemoteCallError({"because": data})


@service.responder("/asked/**")
async def square(message: Accepted) -> Any:
    """Answer with the square of what was sent."""
    if not isinstance(message.data, int):
        raise Unwilling(f"no number: {message.data}")
    return message.data**2


class Unwilling(Exception):
    """A failure that whoever asks may read."""

    error_code = "user.illegalArgument"


@service.listener("/service/leave")
def leave(session: Session, message: Message) -> None:
    """End the session from the server's side."""
    session.disconnect()


@service.listener("/service/flood")
def flood(session: Session, message: Message) -> None:
    """Deliver as many messages to the session as it asks for."""
    for number in range(message.data):
        session.deliver("/flood", number)


@service.listener("/vetoed")
def veto(session: Session, message: Message) -> bool:
    """Refuse every message."""
    return False


@service.authorizer("/closed/**")
def close(operation: Operation, channel: Channel, session: Session, message: Message) -> Deny | Any:
    """Let nobody do anything there."""
    return Deny("nobody may")


@service.authorizer("/open/**")
def open_up(operation: Operation, channel: Channel, session: Session, message: Message) -> Any:
    """Let everybody do anything there."""
    return GRANT


@service.on_session_removed
def tell(session: Session, expired: bool) -> None:
    """Tell on a channel how a session went."""
    service.publish("/gone", "expired" if expired else "said goodbye")

"""A service whose policy lets in only those who show a token, after asking some of them to try again."""

from crewel import Message, Refusal, Service, Session
from crewel.security.policy import OpenPolicy

service = Service("strict")
_tries: dict[str, int] = {}


class TokenPolicy(OpenPolicy):
    """`ext.token` decides: "let me in" at once, "let me in later" at the third try."""

    def can_handshake(self, session: Session, message: Message) -> bool | Refusal:
        """Whether the token is right."""
        token = message.ext.get("token")
        if token == "let me in later":
            _tries[token] = _tries.get(token, 0) + 1
            return _tries[token] >= 3 or Refusal("later", reconnect="handshake")
        return token == "let me in"


service.policy = TokenPolicy()


@service.on_session_added
def greet(session: Session) -> None:
    """Deliver two messages before the session has even heard that it exists."""
    session.deliver("/greeting", "hello")
    session.deliver("/greeting", "again")

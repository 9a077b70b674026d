"""Services for the tests of `crewel serve --service`."""

from crewel import Service, Session

echo = Service("echo")


@echo.remote_call("/echo")
def answer(session: Session, data: object) -> object:
    """Return what was sent."""
    return data

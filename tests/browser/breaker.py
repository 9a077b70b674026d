"""Somebody at the chat who breaks things: what they do in the panel, and what it shows them."""

import re

from playwright.sync_api import Locator, expect

from tests.browser.person import Person

TOKEN = "the-admin-token-of-tests"


class Breaker(Person):
    """Somebody who opens the panel."""

    @classmethod
    def of(cls, person: Person) -> "Breaker":
        """The same person, with more to do."""
        person.__class__ = cls
        assert isinstance(person, cls)
        return person

    def opens(self) -> "Breaker":
        """Open the panel, and wait until the server has granted what it needs."""
        self.page.locator("#breaking > summary").click()
        expect(self.arm_button).to_be_enabled()
        self.sees_state("Connected")
        return self

    def shows_token(self, token: str = TOKEN) -> "Breaker":
        self.page.get_by_label("Admin token").fill(token)
        self.press("Use")
        return self

    def is_operator(self) -> "Breaker":
        self.shows_token()
        expect(self.page.get_by_role("button", name="Forget", exact=True)).to_be_visible()
        return self

    def arms(self, code: str, count: int = 1) -> None:
        """Let the listener throw this at the next so many deliveries."""
        self.page.get_by_role("radio", name=re.compile(rf"^{re.escape(code)}")).check()
        self.page.get_by_label("Deliveries").fill(str(count))
        self.press("Arm")
        expect(self.page.locator("#armed")).to_contain_text(f": {code}.")

    def fate(self, text: str) -> Locator:
        """What the panel says of the message that said this."""
        return self.page.locator("#fates li").filter(has=self.page.locator(f".what:text-is('{text}')"))

    def tag(self, text: str) -> Locator:
        """What the log says of it."""
        return self.line(text).locator(".fate")

    @property
    def arm_button(self) -> Locator:
        return self.page.get_by_role("button", name="Arm", exact=True)

    @property
    def delivery(self) -> Locator:
        return self.page.locator("#delivery")

    @property
    def waiting(self) -> Locator:
        return self.page.locator("#waiting")

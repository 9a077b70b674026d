"""Somebody at the chat page: what they do and what they see, in the page's own words."""

import re

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, expect

LIMIT_MS = 30_000
AGAIN = re.compile(r"^sent again .\d+$")
expect.set_options(timeout=LIMIT_MS)

COUNT_CHANGES = """(each) => {
    window.changes = 0;
    new MutationObserver((all) => { window.changes += all.length; })
        .observe(each, {childList: true, characterData: true, subtree: true});
}"""
"""Counts in `changes` how often an element gets content, the same one included: a screen reader reads it each time."""


class Person:
    """A page of its own at the chat. `complaints` is what the browser held against it; `room` is where they go unless told."""

    def __init__(self, context: BrowserContext, base: str, name: str, room: str = "demo") -> None:
        self.name = name
        self.room = room
        self.complaints: list[str] = []
        self._pardoned: list[str] = []
        self._base = base
        self.page = context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.page.on("console", self._hear_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.goto(f"{base}/chat/")

    def expect_complaint(self, part: str) -> None:
        """Pardon console errors that contain this text."""
        self._pardoned.append(part)

    def _hear_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or any(part in message.text for part in self._pardoned):
            return
        self.complaints.append(f"console {message.type}: {message.text}")

    # What they do

    def join(self, *, transport: str = "automatic", reliable: bool = True, room: str | None = None) -> "Person":
        self.try_to_join(transport=transport, reliable=reliable, room=room)
        self.sees_state("Connected")
        self.sees_member(self.name)
        return self

    def try_to_join(self, *, transport: str = "automatic", reliable: bool = True, room: str | None = None) -> None:
        self.page.get_by_label("Your name").fill(self.name)
        self.page.get_by_label("Room", exact=True).fill(room or self.room)
        self.page.get_by_label("Transport", exact=True).select_option(transport)
        self.page.get_by_label("Enable reliable messaging").set_checked(reliable)
        self.press("Join")

    def say(self, text: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.press("Send")

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def acknowledge(self, yes: bool) -> None:
        self.page.get_by_label("Acknowledge incoming messages").set_checked(yes)

    # What they see

    def line(self, text: str) -> Locator:
        """The lines of the log that say exactly this."""
        what = self.page.locator(".what").filter(has_text=re.compile(f"^{re.escape(text)}$"))
        return self.page.get_by_role("log").locator("li").filter(has=what)

    def sees(self, text: str, times: int = 1) -> Locator:
        """Wait until the log has this line, exactly so often."""
        line = self.line(text)
        expect(line).to_have_count(times)
        return line

    def sees_again(self, text: str, at_least: int = 1) -> None:
        """Wait until the last line that says this is marked as sent again so often."""
        expect(self.line(text).last.locator(".again")).to_have_text(AGAIN, timeout=LIMIT_MS)
        for _ in range(at_least, 1, -1):
            before = self.line(text).last.locator(".again").inner_text()
            expect(self.line(text).last.locator(".again")).not_to_have_text(before)

    def sees_not(self, text: str) -> None:
        """Assert that the log has no such line now."""
        assert self.line(text).count() == 0, f"{self.name} sees {text!r}"

    def texts(self) -> list[str]:
        """What was said by people, in order, without joins and leaves."""
        return self.page.locator("#log .message .what").all_inner_texts()

    def sees_state(self, state: str) -> None:
        expect(self.page.locator("#state")).to_have_text(state)

    def sees_member(self, *names: str) -> None:
        for name in names:
            shown = f"{name} (you)" if name == self.name else name
            expect(self.page.locator("#members li").filter(has_text=re.compile(f"^{re.escape(shown)}$"))).to_have_count(
                1
            )

    def sees_members(self, count: int) -> None:
        expect(self.page.locator("#members li")).to_have_count(count)

    def figure(self, label: str) -> Locator:
        """The value beside this label in the table of figures."""
        return self.page.locator(f"dt:text-is('{label}') + dd")

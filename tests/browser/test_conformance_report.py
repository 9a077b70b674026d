"""The report of the conformance runner, on a desk and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from crewel.conformance.check_table import CHECKS, Outcome
from crewel.conformance.report import as_html
from crewel.conformance.runner import Report, Result
from tests.browser.conftest import keep_picture

pytestmark = pytest.mark.browser

LONG = "expected a reply, got " + "x" * 200


@pytest.mark.parametrize(("name", "width", "scheme"), [("wide", 1280, "light"), ("phone", 390, "dark")])
def test_the_report_fits(browser: Browser, name: str, width: int, scheme: str) -> None:
    results = [Result(check, "long-polling", Outcome.PASSED, "", 0.1) for check in CHECKS.values()]
    results[-1] = Result(results[-1].check, "long-polling", Outcome.FAILED, LONG, 0.1)
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    page.set_content(as_html(Report(f"http://{'host.' * 20}example/cometd", ["long-polling"], results)))
    keep_picture(page, f"conformance-{name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    row = page.locator(f"#{results[-1].check.id}")
    expect(row).not_to_be_in_viewport()
    page.get_by_role("link", name=results[-1].check.id).click()
    expect(row).to_be_in_viewport()
    assert page.locator("tbody tr[id]").count() == len(CHECKS)
    page.close()

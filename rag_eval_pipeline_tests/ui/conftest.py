"""Chromium, as it is on this machine; pages that keep their console's errors and every request that they make."""

import os
import shutil
from contextlib import contextmanager

import pytest


@pytest.fixture(scope="session")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("RAG_EVAL_REQUIRE_DATA") == "1":
            pytest.fail("chromium is required (RAG_EVAL_REQUIRE_DATA=1) and absent")
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@contextmanager
def watched(browser, **options):
    """A page; `faults` are its console's errors, `requests` all that it asked for."""
    context = browser.new_context(**{"viewport": {"width": 1500, "height": 1000}, **options})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.faults, page.requests = [], []
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    try:
        yield page
    finally:
        context.close()

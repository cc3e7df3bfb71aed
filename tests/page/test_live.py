"""The live page in chromium: what changes, what is away, and who may not ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from kubectl_gangsched.page.live import server
from tests.fake_api import pod
from tests.live_page import PODS, cluster, live
from tests.live_page import Page as Served
from tests.page.browser import REBOUND, REPORTS, SEES_MS

pytestmark = pytest.mark.page

MOST_REQUESTS = 6


@contextmanager
def entered(
    browser: Browser, served: Served, *, code: str = ""
) -> Iterator[tuple[Page, list[str]]]:
    """The page behind its link, and what it asked for."""
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.add_init_script(REPORTS)
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{served.server.address}#{code or served.server.guard.code}")
    try:
        yield page, asked
        assert errors == []
        assert page.evaluate("violations") == []
        assert [url for url in asked if not url.startswith((served.server.address, "data:"))] == []
    finally:
        context.close()


def test_a_bind_is_seen_on_its_node(browser: Browser, tmp_path: Path) -> None:
    """Without a reload, and after at most six requests; the code is gone from the address."""
    with (
        live(tmp_path, cluster(), enter=False) as served,
        entered(browser, served) as (page, asked),
    ):
        page.wait_for_selector(".waiting:has-text('team/waits')", timeout=SEES_MS)
        assert len([url for url in asked if not url.startswith("data:")]) <= MOST_REQUESTS
        assert served.server.guard.code not in page.url
        node = page.locator(".node:has-text('n1')")
        assert "8 of 8 GPU free" in str(node.get_attribute("title"))

        served.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        page.wait_for_selector(".node[title*='8 used by team/waits']", timeout=SEES_MS)
        assert page.locator(".waiting").count() == 0
        assert "live" in page.inner_text(".fresh")


def test_a_reload_keeps_the_session_and_a_copied_link_does_not(
    browser: Browser,
    tmp_path: Path,
) -> None:
    """The key stays in the tab; whoever opens the link again is told that it was used."""
    with live(tmp_path, cluster(), enter=False) as served:
        with entered(browser, served) as (page, _):
            page.wait_for_selector(".node", timeout=SEES_MS)
            page.reload()
            page.wait_for_selector(".node", timeout=SEES_MS)

        with entered(browser, served) as (page, _):
            page.wait_for_selector("h1.fault", timeout=SEES_MS)
            assert "used already" in page.inner_text("h1")


def test_an_api_server_that_is_away_is_said(browser: Browser, tmp_path: Path) -> None:
    """What is shown stays, with how old it is; the page is live again by itself."""
    with live(tmp_path, cluster(), enter=False) as served, entered(browser, served) as (page, _):
        page.wait_for_selector(".fresh.live", timeout=SEES_MS)
        served.fake.is_away = True
        page.wait_for_selector(".fresh.behind", timeout=SEES_MS)
        assert page.locator(".node").count() == 2
        served.fake.is_away = False
        page.wait_for_selector(".fresh.live", timeout=SEES_MS)


def test_the_end_of_the_command_is_said(browser: Browser, tmp_path: Path) -> None:
    """The tab does not look as if it were live."""
    with live(tmp_path, cluster(), enter=False) as served, entered(browser, served) as (page, _):
        page.wait_for_selector(".fresh.live", timeout=SEES_MS)
        served.server.feed.end()
        page.wait_for_selector(".fresh.ended", timeout=SEES_MS)


def test_a_gang_is_opened_live(browser: Browser, tmp_path: Path) -> None:
    """Its members are asked for then, and what would help only when somebody asks."""
    with (
        live(tmp_path, cluster(), enter=False) as served,
        entered(browser, served) as (page, asked),
    ):
        page.click(".waiting .name:has-text('team/waits')", timeout=SEES_MS)
        page.wait_for_selector("td:has-text('waits-0')", timeout=SEES_MS)
        assert not [url for url in asked if url.endswith("/api/ask")]
        page.click(".ask")
        page.wait_for_selector(".helps [aria-live] p", timeout=SEES_MS)
        assert [url for url in asked if url.endswith("/api/ask")]


class Elsewhere(BaseHTTPRequestHandler):
    """Another site."""

    def do_GET(self) -> None:
        """An empty page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of another site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


_FETCHES = """
async ([address, key]) => {
  const headers = { Authorization: `Bearer ${key}` };
  const tries = [
    fetch(`${address}api/document`, { headers }),
    fetch(`${address}api/document`, { mode: 'no-cors' }).then(answer => answer.text()),
    fetch(`${address}page.js`, { mode: 'no-cors' }).then(answer => answer.text()),
    fetch(`${address}api/ask`, { method: 'POST', body: '{"gang":"team/waits"}', mode: 'no-cors' })
      .then(answer => answer.text()),
  ];
  const got = await Promise.allSettled(tries);
  return got.map(one => one.status === 'rejected' ? '' : String(one.value));
}
"""


def test_another_site_gets_nothing(browser: Browser, tmp_path: Path, elsewhere: str) -> None:
    """Neither with fetch nor with a POST nor in a frame, even if it knew the key."""
    with live(tmp_path, cluster()) as served:
        context = browser.new_context()
        page = context.new_page()
        page.goto(elsewhere)
        assert page.evaluate(_FETCHES, [served.server.address, served.key]) == [""] * 4

        frame = "document.body.append(Object.assign(document.createElement('iframe'), {src: '%s'}))"
        with page.expect_event("framenavigated", timeout=SEES_MS):
            page.evaluate(frame % served.server.address)

        assert all("gangsched" not in frame.content() for frame in page.frames)
        context.close()


def test_another_name_gets_nothing(browser: Browser, tmp_path: Path) -> None:
    """A site whose name was bound to this address (DNS rebinding) is refused."""
    with live(tmp_path, cluster()) as served:
        context = browser.new_context()
        page = context.new_page()
        answer = page.goto(f"http://{REBOUND}:{served.port}/")
        assert answer is not None
        assert answer.status == 421
        found = page.evaluate(
            "key => fetch('/api/document', {headers: {Authorization: `Bearer ${key}`}})"
            ".then(answer => answer.status)",
            served.key,
        )
        assert found == 421
        context.close()


_KEY = "sessionStorage.setItem('gangsched-session', '%s')"


def test_more_tabs_than_there_are_streams_are_told(browser: Browser, tmp_path: Path) -> None:
    """Each shows the cluster; those that get no changes say why, and get them once one is closed. A
    browser has six connections to one host, and none of the tabs may hang for want of one.
    """
    with live(tmp_path, cluster()) as served:
        context = browser.new_context(reduced_motion="reduce")
        context.add_init_script(_KEY % served.key)
        tabs = []
        for _ in range(server.STREAMS + 2):
            tabs.append(context.new_page())
            tabs[-1].goto(served.server.address)
            tabs[-1].wait_for_selector(".node", timeout=SEES_MS)

        *lasting, refused, _ = tabs
        refused.wait_for_selector(".missing:has-text('close one of them')", timeout=SEES_MS)
        documents = refused.evaluate(
            "performance.getEntriesByType('resource').filter(one => /document/.test(one.name))"
        )
        assert len(documents) == 1
        assert all(tab.locator(".fresh.live").count() == 1 for tab in lasting)
        for tab in lasting[:2]:
            tab.close()

        for tab in tabs[2:]:
            tab.wait_for_selector(".fresh.live", timeout=SEES_MS)

        served.fake.change("MODIFIED", PODS, pod("waits-0", gang="waits", node="n1", gpus=8))
        for tab in tabs[2:]:
            tab.wait_for_selector(".node[title*='8 used by team/waits']", timeout=SEES_MS)

        context.close()

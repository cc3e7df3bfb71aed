"""Opens the page in Debian's chromium and keeps what the browser complained about.

Invariant: no test of the page ends well if a script failed, the policy was violated, or anything
was asked of another host.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from playwright.sync_api import Browser, Page, Playwright

VIEWS = ("overview", "queue", "gang/demo/llm", "time", "what-if", "health")
"""The six views, of which one shows a gang of the demo."""
DESKTOP = (1280, 800)
PHONE = (390, 844)
ZOOMED = (640, 400)
"""A window of 1280 x 800 at 200 %."""
SIZES = (DESKTOP, PHONE, ZOOMED)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
Scheme: TypeAlias = Literal["light", "dark"]
READY_MS = 60_000
SEES_MS = 30_000
"""How long a change may take to be seen, on a machine that does much else."""
REBOUND = "rebound.test"
"""A name that resolves to 127.0.0.1."""
REPORTS = """
window.violations = [];
addEventListener('securitypolicyviolation', (event) => violations.push(
  `${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
"""


def launched(playwright: Playwright) -> Browser:
    """The chromium of this machine. Raises AssertionError where there is none."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "chromium is not in PATH: make chromium installs it"
    # Root, as which CI runs, has no sandbox.
    return playwright.chromium.launch(
        executable_path=path,
        args=[
            "--no-sandbox",
            "--force-color-profile=srgb",
            f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
        ],
    )


@dataclass
class Opened:
    """A page in the browser."""

    page: Page
    #: What scripts failed with, and what was asked of other hosts.
    complaints: list[str] = field(default_factory=list)

    def view(self, name: str) -> None:
        """Go to a view by its address, and wait until it is drawn."""
        self.page.evaluate(
            "name => { location.hash = `#${name}`; }",
            name,
        )
        self.page.wait_for_function(
            "view => document.querySelector('main')?.className === `view-${view}`",
            arg=name.partition("/")[0].partition("?")[0],
        )
        self.settle()

    def settle(self) -> None:
        """Wait until two frames were drawn."""
        self.page.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def ask(self, script: str) -> Any:
        """What a script returns."""
        return self.page.evaluate(script)

    def text(self) -> str:
        """All that can be read."""
        return self.page.inner_text("body")

    def check(self) -> None:
        """Raise AssertionError if the browser complained."""
        assert self.complaints == []
        assert self.ask("violations") == []


@contextmanager
def opened(
    browser: Browser,
    path: Path,
    view: str = "overview",
    *,
    size: tuple[int, int] = DESKTOP,
    scheme: Scheme = "light",
) -> Iterator[Opened]:
    """A file of the page, ready, without motion."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page = context.new_page()
    there = Opened(page)
    page.set_default_timeout(SEES_MS / 2)
    page.add_init_script(REPORTS)
    page.on("pageerror", lambda error: there.complaints.append(str(error)))
    page.on("request", lambda request: _note(there, path, request.url))
    page.goto(f"{path.as_uri()}#{view}", timeout=READY_MS)
    page.wait_for_selector("main h1", timeout=READY_MS)
    there.settle()
    try:
        yield there
        there.check()
    finally:
        context.close()


def _note(there: Opened, path: Path, url: str) -> None:
    """Anything but the file itself and data is too much."""
    if not url.startswith((path.as_uri(), "data:")):
        there.complaints.append(f"asked for {url}")

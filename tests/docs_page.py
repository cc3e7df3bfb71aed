"""Pictures of the page for the manual, made in a browser from examples: `make docs-page` writes
them.

The demo in the README, one of its gangs, and a cluster of 5,000 nodes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from kubectl_gangsched.page import file_host
from tests.page.browser import DESKTOP, Scheme, launched
from tests.page_examples import EXAMPLES

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SCALE = 1.5


class Picture(NamedTuple):
    """One picture: the example, the view, and the window."""

    name: str
    example: str
    view: str = "overview"
    scheme: Scheme = "light"


PICTURES = (
    Picture("page", "demo"),
    Picture("page-gang", "demo", "gang/demo/llm", scheme="dark"),
    Picture("page-5000-nodes", "big"),
)


def draw(browser: Browser, picture: Picture, path: Path) -> None:
    """Write one picture of a file of the page."""
    context = browser.new_context(
        viewport={"width": DESKTOP[0], "height": DESKTOP[1]},
        color_scheme=picture.scheme,
        device_scale_factor=SCALE,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{path.as_uri()}#{picture.view}")
    page.wait_for_selector("main h1")
    # Fonts and canvases are there some frames after the elements.
    page.wait_for_function("document.fonts.status === 'loaded'")
    page.evaluate("new Promise(done => setTimeout(done, 500))")
    page.screenshot(path=FOLDER / f"{picture.name}.png")
    context.close()


def main() -> None:
    """Write all of them."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launched(playwright)
        for name, example in EXAMPLES.items():
            path = Path(folder) / f"{name}.html"
            path.write_text(file_host.html(example()), encoding="utf-8")
            for picture in PICTURES:
                if picture.example == name:
                    draw(browser, picture, path)

        browser.close()


if __name__ == "__main__":
    main()

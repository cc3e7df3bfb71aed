"""One browser for all tests of the page, and the files that it opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from kubectl_gangsched.page import file_host
from kubectl_gangsched.page.document import Document
from tests.page.browser import launched
from tests.page.hostile import hostile
from tests.page_examples import big, demo


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's chromium."""
    with sync_playwright() as playwright:
        chromium = launched(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each example."""
    folder = tmp_path_factory.mktemp("page")
    written = {}
    documents: dict[str, Document] = {"demo": demo(), "hostile": hostile(), "big": big(moments=6)}
    for name, document in documents.items():
        written[name] = folder / f"{name}.html"
        written[name].write_text(file_host.html(document), encoding="utf-8")

    return written

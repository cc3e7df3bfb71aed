"""The checks of the page find what is planted."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files as resources
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error

from kubectl_gangsched.page import bundle, file_host
from kubectl_gangsched.page.document import Document
from tests.page import checks
from tests.page.hostile import hostile
from tests.page.planted import PLANTED, Planted
from tests.page_examples import big, demo

pytestmark = pytest.mark.page

EXAMPLES: dict[str, Callable[[], Document]] = {"demo": demo, "big": big, "hostile": hostile}


def _cost(planted: Planted) -> tuple[pytest.MarkDecorator, ...]:
    """What takes more than a second is for `make page-long`."""
    is_cheap = planted.example == "demo" and planted.check not in {
        checks.keyboard,
        checks.overview_is_accessible,
    }
    return () if is_cheap else (pytest.mark.long,)


@pytest.mark.parametrize(
    "planted",
    [pytest.param(planted, marks=_cost(planted), id=planted.bug) for planted in PLANTED],
)
def test_a_planted_bug_is_found(
    browser: Browser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    planted: Planted,
) -> None:
    """Without it the same check passes (`test_page`)."""
    texts = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in (resources("kubectl_gangsched.page") / "assets").iterdir()
    }
    assert texts[planted.file].count(planted.old) >= 1
    texts[planted.file] = texts[planted.file].replace(planted.old, planted.new)
    modules = {name: text for name, text in texts.items() if name.endswith(".js")}
    script = bundle.bundled(modules, bundle.MAIN)
    monkeypatch.setattr(bundle, "asset", texts.__getitem__)
    monkeypatch.setattr(bundle, "script", lambda: script)
    path = tmp_path / "planted.html"
    path.write_text(file_host.html(EXAMPLES[planted.example]()), encoding="utf-8")

    with pytest.raises((AssertionError, Error)):
        planted.check(browser, path)

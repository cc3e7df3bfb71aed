"""The page in chromium: what it says, for everybody, in every window, whatever names there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from kubectl_gangsched.page import file_host
from tests.page import checks
from tests.page.browser import DESKTOP, PHONE, SCHEMES, VIEWS, Scheme, opened
from tests.page_examples import demo

pytestmark = pytest.mark.page


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_accessible(browser: Browser, files: dict[str, Path], scheme: Scheme) -> None:
    """axe-core finds nothing in six views."""
    checks.accessible(browser, files["demo"], scheme)


def test_a_large_cluster_is_accessible_too(browser: Browser, files: dict[str, Path]) -> None:
    """With a canvas, and with lists of which only a part exists."""
    checks.accessible(browser, files["big"])


def test_nothing_scrolls_sideways(browser: Browser, files: dict[str, Path]) -> None:
    """On a desktop, on a phone, and at 200 %."""
    checks.no_sideways_scrolling(browser, files["demo"])
    checks.no_sideways_scrolling(browser, files["hostile"])


@pytest.mark.parametrize(
    "check",
    [
        checks.sentences,
        checks.squares,
        checks.keyboard,
        checks.typing,
        checks.isolates,
        checks.moments,
        checks.bars,
        checks.all_bars_can_be_reached,
        checks.says_who_holds_a_node,
        checks.nothing_of_the_answers_is_cut,
    ],
)
def test_the_demo(browser: Browser, files: dict[str, Path], check: checks.Check) -> None:
    """Each of these holds of the demo cluster."""
    check(browser, files["demo"])


def test_a_large_cluster_has_few_elements(browser: Browser, files: dict[str, Path]) -> None:
    """And its queue can be filtered."""
    checks.small(browser, files["big"])
    checks.filters(browser, files["big"])


def test_hostile_names_are_text(browser: Browser, files: dict[str, Path]) -> None:
    """And the browser reports no violation of the policy, which `opened` checks."""
    checks.shows_as_text(browser, files["hostile"])
    checks.all_bars_can_be_reached(browser, files["hostile"])


def test_a_damaged_file_is_one_sentence(browser: Browser, tmp_path: Path) -> None:
    """Half a document cannot be shown."""
    html = file_host.html(demo())
    before, mark, rest = html.partition('id="document">')
    data, end, after = rest.partition("</script>")
    path = tmp_path / "damaged.html"
    path.write_text(before + mark + data[: len(data) // 2] + end + after)
    with opened(browser, path) as there:
        assert there.page.inner_text("main").startswith("This file is damaged or incomplete")


def _pictures(
    browser: Browser, path: Path, views: tuple[str, ...], scheme: Scheme, size: tuple[int, int]
) -> dict[str, bytes]:
    with opened(browser, path, size=size, scheme=scheme) as there:
        pictures = {}
        for view in views:
            there.view(view)
            pictures[view] = there.page.screenshot(full_page=True)

    return pictures


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(
    ("example", "views"),
    [
        pytest.param("demo", VIEWS[:1], id="overview"),
        pytest.param("demo", VIEWS, id="all", marks=pytest.mark.long),
        pytest.param("big", ("overview", "queue", "time"), id="big", marks=pytest.mark.long),
    ],
)
def test_a_file_is_always_the_same_picture(
    browser: Browser,
    files: dict[str, Path],
    example: str,
    views: tuple[str, ...],
    scheme: Scheme,
    size: tuple[int, int],
) -> None:
    """Opened twice, no pixel differs: neither the moment of opening nor any order is in it."""
    first = _pictures(browser, files[example], views, scheme, size)
    second = _pictures(browser, files[example], views, scheme, size)
    assert [view for view in views if first[view] != second[view]] == []

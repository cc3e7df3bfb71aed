"""What must hold on the page, as functions: tests run them on the page, and on pages with a planted
bug, of which each must fail one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from playwright.sync_api import Browser

from tests.page import hostile
from tests.page.browser import PHONE, SIZES, VIEWS, Opened, Scheme, opened

Check: TypeAlias = Callable[[Browser, Path], None]
MOST_ELEMENTS = 1_500
RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"


def violations(there: Opened) -> list[str]:
    """Rules of axe-core (A, AA and best practice) that the page breaks, with the first element."""
    if not there.ask("'axe' in window"):
        there.ask(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))

    found: list[dict[str, Any]] = there.ask(
        f"axe.run(document, {{runOnly: {RULES}, resultTypes: ['violations']}})"
        ".then(result => result.violations.map(one => ({id: one.id, at: one.nodes[0].html})))"
    )
    return [f"{one['id']}: {one['at'][:200]}" for one in found]


def accessible(browser: Browser, path: Path, scheme: Scheme = "light") -> None:
    """No view breaks a rule."""
    with opened(browser, path, scheme=scheme) as there:
        gangs = there.ask("document.querySelector('a.name')?.getAttribute('href')")
        for view in (*VIEWS, gangs.removeprefix("#")):
            there.view(view)
            found = violations(there)
            assert not found, (view, scheme, found)


def no_sideways_scrolling(browser: Browser, path: Path) -> None:
    """Each view is as wide as the window, at each size."""
    for size in SIZES:
        with opened(browser, path, size=size) as there:
            for view in VIEWS:
                there.view(view)
                wide = there.ask("document.documentElement.scrollWidth")
                assert wide <= size[0], (view, size, wide)


def sentences(browser: Browser, path: Path) -> None:
    """The overview says what is free, what waits, why and until when, in the scheduler's words."""
    with opened(browser, path) as there:
        text = there.text()
        assert there.page.inner_text("h1").startswith("15 of 96 nvidia.com/gpu are free")
        assert "Gang demo/llm needs 5 pods of 8 nvidia.com/gpu; 1 fits" in text
        assert "starts 14:56 at the latest" in text
        assert there.page.inner_text(".answers-row").split("\n")[:2] == ["Free GPUs", "15 of 96"]
        row = there.page.inner_text(".runs tr:has-text('demo/resnet')").split()
        assert row == ["A", "demo/resnet", "48", "1", "h", "40", "min", "14:55"]

        # Nothing of the queue is cut off.
        there.view("queue")
        box = there.page.locator(".waitings")
        assert box.evaluate("list => list.scrollHeight <= list.clientHeight")
        assert "when demo/resnet has ended" in there.page.inner_text(".waitings")


def squares(browser: Browser, path: Path) -> None:
    """Each square has the letter of its user; what is closed or reserved says so."""
    with opened(browser, path) as there:
        nodes = there.page.locator(".node")
        assert nodes.count() == 12
        letters = nodes.evaluate_all(
            "all => all.map(node => [...node.querySelectorAll('.squares i')]"
            ".map(one => one.textContent || '.').join(''))"
        )
        assert letters == [*["A" * 8] * 6, *["B" * 8] * 2, "C.......", "×" * 8, "." * 8, "!" * 8]
        assert nodes.nth(0).locator(".tag").inner_text() == "→ D 14:56"
        assert nodes.nth(9).locator(".word").inner_text() == "cordoned"
        assert nodes.nth(11).locator(".word").inner_text() == "not ready"
        racks = there.page.locator(".rack-name").all_inner_texts()
        assert [" ".join(rack.split()) for rack in racks] == [
            "rack r1 0 free",
            "rack r2 0 free",
            "rack r3 15 free",
        ]


def keyboard(browser: Browser, path: Path) -> None:
    """Without a mouse: find a gang, read why it waits, see it on the map, open a node, return."""
    with opened(browser, path) as there:
        press = there.page.keyboard.press
        press("/")
        there.page.keyboard.type("llm")
        there.page.wait_for_selector("[role=option]")
        press("Enter")
        there.page.wait_for_selector("#gang-h")
        assert "needs 5 pods of 8 nvidia.com/gpu; 1 fits" in there.page.inner_text(".sentence")

        _tab_to(there, "Show it on the map")
        press("Enter")
        there.page.wait_for_selector(".view-overview .legend-key[aria-pressed=true]")
        _tab_to(there, "node-01")
        press("ArrowDown")
        press("ArrowRight")
        assert _focused(there).startswith("node-06")
        press("Enter")
        assert "14:55" in there.page.inner_text(".inspector")

        press("Escape")
        there.settle()
        assert there.page.locator(".inspector").count() == 0
        assert there.page.locator(".legend-key[aria-pressed=true]").count() == 0


def typing(browser: Browser, path: Path) -> None:
    """The field takes what is typed right behind `/`, before another frame is drawn."""
    slash = "new KeyboardEvent('keydown', { key: '/', bubbles: true })"
    with opened(browser, path) as there:
        focused = f"(document.body.dispatchEvent({slash}), document.activeElement.type)"
        assert there.ask(focused) == "search"

        there.page.keyboard.type("llm")
        there.page.wait_for_selector("[role=option]")
        there.page.keyboard.press("Escape")
        there.settle()
        assert there.ask(focused) == "search"
        assert there.ask("document.activeElement.value") == ""


def _focused(there: Opened) -> str:
    return str(there.ask("document.activeElement.innerText || document.activeElement.ariaLabel"))


def _tab_to(there: Opened, text: str) -> None:
    for _ in range(60):
        if _focused(there).startswith(text):
            return

        there.page.keyboard.press("Tab")

    raise AssertionError(f"{text} cannot be reached with Tab")


def isolates(browser: Browser, path: Path) -> None:
    """Whoever isolates a gang sees its nodes and those reserved for it, and the others faintly."""
    with opened(browser, path, "overview?focus=demo/llm") as there:
        faint = there.page.locator(".node.dim .node-name").all_inner_texts()
        assert faint == [f"node-{number:02}" for number in range(6, 13)]


def filters(browser: Browser, path: Path) -> None:
    """The queue is filtered by what is typed; the number says how many of how many."""
    with opened(browser, path, "queue", size=PHONE) as there:
        assert "9,995 gangs" in there.page.inner_text("#queue-h + .note")
        there.page.fill("input[type=search]", "wait-00777")
        there.settle()
        assert there.page.locator(".waiting").count() == 1
        assert "1 of 9,995 gangs" in there.page.inner_text("#queue-h + .note")


def shows_as_text(browser: Browser, path: Path) -> None:
    """A hundred hostile names are text in every view, and nothing of them runs."""
    with opened(browser, path) as there:
        for view in ("overview", "queue", "gang", "time", "health"):
            there.view(view)
            _harmless(there)

        seen = there.ask("document.body.textContent")
        assert hostile.PARTS[0] in seen
        for name in hostile.names()[:20]:
            there.view(f"gang/{quote(name, safe='')}/{quote(name, safe='')}")
            _harmless(there)

        there.page.keyboard.press("/")
        there.page.keyboard.type("<")
        there.settle()
        _harmless(there)


def _harmless(there: Opened) -> None:
    assert there.ask("window.pwned") is None
    for tag in ("img", "iframe", "#page script", "#page style", "a[href^=http]"):
        assert there.page.locator(tag).count() == 0, tag

    links = there.page.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    assert there.page.locator("h1").count() == 1


def small(browser: Browser, path: Path) -> None:
    """However large the cluster is, no view has more elements than a browser bears."""
    with opened(browser, path) as there:
        for view in ("overview", "queue", "gang", "time", "what-if", "health"):
            there.view(view)
            assert there.ask("document.querySelectorAll('*').length") <= MOST_ELEMENTS, view


def moments(browser: Browser, path: Path) -> None:
    """The slider shows each moment as it was: before the gang came nothing waits."""
    with opened(browser, path) as there:
        assert there.page.locator(".waiting").count() == 1
        there.page.locator("input[type=range]").press("ArrowLeft")
        there.settle()
        assert "No gang waits." in there.page.inner_text(".brief")
        assert "13:40:00" in there.page.inner_text(".fresh")
        assert there.page.locator(".node.reserved").count() == 0
        there.page.get_by_role("button", name="Last").click()
        there.settle()
        assert there.page.locator(".node.reserved").count() == 5


def bars(browser: Browser, path: Path) -> None:
    """Solid happened, striped expected, dashed promised, dotted waits; each where it should be."""
    with opened(browser, path, "time") as there:
        assert there.page.locator(".bar.happened rect").count() == 3
        assert there.page.locator(".bar.expected rect[fill^=url]").count() == 3
        assert there.page.locator(".bar.promised rect").count() == 1
        assert there.page.locator(".bar.waited line").count() == 1
        now = float(str(there.page.locator("line.now").first.get_attribute("x1")))
        ran = there.page.locator(".bar.happened rect").first
        end = float(str(ran.get_attribute("x"))) + float(str(ran.get_attribute("width")))
        assert abs(end - now) < 1
        promised = float(str(there.page.locator(".bar.promised rect").get_attribute("x")))
        assert promised > now
        assert "promised: 14:56 at the latest" in there.page.text_content("main")  # type: ignore[operator]


def overview_is_accessible(browser: Browser, path: Path) -> None:
    """The first view breaks no rule."""
    with opened(browser, path) as there:
        found = violations(there)
        assert not found, found


def fits_a_phone(browser: Browser, path: Path) -> None:
    """The first view is as wide as a phone."""
    with opened(browser, path, size=PHONE) as there:
        assert there.ask("document.documentElement.scrollWidth") <= PHONE[0]


def all_bars_can_be_reached(browser: Browser, path: Path) -> None:
    """However many rows there are, the last one can be scrolled to."""
    with opened(browser, path, "time") as there:
        box = there.page.locator(".chart-scroll")
        box.evaluate("area => { area.scrollTop = 1e6; }")
        there.settle()
        last = there.page.locator(".chart-label").last.bounding_box()
        area = box.bounding_box()
        assert last is not None
        assert area is not None
        assert last["y"] + last["height"] <= area["y"] + area["height"] + 1


def says_who_holds_a_node(browser: Browser, path: Path) -> None:
    """Beside the node, wherever the page has been scrolled to: on a desktop and on a phone."""
    for size in SIZES:
        with opened(browser, path, size=size) as there:
            node = there.page.locator(".node:has-text('node-07')")
            node.scroll_into_view_if_needed()
            node.click()
            there.page.wait_for_selector(".inspector")
            assert there.page.locator(".inspector").evaluate(
                "box => box.getBoundingClientRect().top >= 0"
                " && box.getBoundingClientRect().bottom <= innerHeight"
            ), size
            assert "17:25" in there.page.inner_text(".inspector")


def nothing_of_the_answers_is_cut(browser: Browser, path: Path) -> None:
    """A phone has no pointer that would show the rest."""
    with opened(browser, path, size=PHONE) as there:
        assert there.page.locator(".answer-note").evaluate_all(
            "all => all.every(note => note.scrollWidth <= note.clientWidth)"
        )

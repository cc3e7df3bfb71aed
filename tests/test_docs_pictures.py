"""The pictures of the README are those of the manual's examples."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.docs_pictures import FOLDER, ROOT, SHOWN, picture


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_is_its_example(name: str) -> None:
    """`make docs-pictures` writes it again."""
    drawn = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == picture(name), "run `make docs-pictures`"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "@font-face" not in drawn


@pytest.mark.parametrize("name", SHOWN)
def test_the_readme_shows_it(name: str) -> None:
    """By its path."""
    assert f"](docs/pictures/{name}.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["dashboard", "dashboard-top"])
def test_the_readme_shows_the_dashboard(name: str) -> None:
    """`make docs-dashboard` draws it, which takes minutes; the README links to what is there."""
    assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert f"](docs/pictures/{name}.png)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_picture_is_the_page() -> None:
    """`make docs-page` draws it and the others of the page, each of which the manual shows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.index("](docs/pictures/page.png)") == readme.index("](docs/pictures/")
    guide = (ROOT / "docs" / "guides" / "page.md").read_text(encoding="utf-8")
    for path in FOLDER.glob("page*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"](../pictures/{path.name})" in guide

"""Pictures of terminals for the README, made from examples of the manual: `make docs-pictures`
writes them.

Invariant: nothing is drawn that the manual does not show, and tests run its examples;
`test_docs_pictures` checks that the pictures are those of the examples.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH = 100
SHOWN = {
    "gangs": ("docs/visibility.md", "kubectl get gangs"),
    "why": ("docs/kubectl.md", "kubectl gangsched why training"),
    "map": ("docs/kubectl.md", "kubectl gangsched map"),
}
"""Of each picture the page, and the command whose output it shows."""
_FONT = re.compile(r"(?s)@font-face \{.*?\}\s*")
"""What would be fetched from elsewhere."""


def example(page: str, command: str) -> str:
    """The command as it stands on the page, with its output up to the next command or the end of
    the block.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^\$ {re.escape(command)}\n.*?(?=^\$ |^```)", text)
    assert found is not None, f"{page} has no example of {command}"
    return found[0].rstrip()


def picture(name: str) -> str:
    """The picture of this name, as SVG."""
    page, command = SHOWN[name]
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text(example(page, command)))
    return _FONT.sub("", console.export_svg(title=command, unique_id=f"gangsched-{name}"))


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in SHOWN:
        (FOLDER / f"{name}.svg").write_text(picture(name), encoding="utf-8")


if __name__ == "__main__":
    main()

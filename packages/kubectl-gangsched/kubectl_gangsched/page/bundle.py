"""The page's own files: `index.html`, `page.css`, and modules of JavaScript that become one script.
A wheel holds that script instead of the modules (`hatch_build.py`).

Invariant: one script has one hash for the Content-Security-Policy of a file, and is one request
live. Modules import by name from modules beside them, without a cycle, and export functions,
classes and constants only; anything else is an error that a test finds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

MAIN = "main.js"
SCRIPT = "page.js"
STYLES = "page.css"
INDEX = "index.html"
STYLES_TAG = '<link rel="stylesheet" href="page.css">'
SCRIPT_TAG = '<script type="module" src="main.js"></script>'

_import = re.compile(r"^import\s*\{(?P<names>[^}]*)\}\s*from\s*'\./(?P<module>[\w.]+)';?$", re.M)
_list = re.compile(r"(?P<before>^|[;}\s])export\s*\{(?P<names>[^}]*)\};?")
_declared = re.compile(
    r"^export\s+(?=(?:async\s+)?(?:function\*?|const|class)\s+(?P<name>\w+))", re.M
)
_comment = re.compile(r"^[ \t]*(?://[^\n]*|/\*\*(?:(?!\*/).)*\*/[ \t]*)\n", re.M | re.S)
"""Lines that are nothing but a comment; `vendor.js` keeps its licences, which begin with `/*!`."""
_other = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b).*$", re.M)


class BundleError(ValueError):
    """A module that cannot be bundled; `str()` says why."""


def asset(name: str) -> str:
    """A file of the page. Raises FileNotFoundError."""
    return (files("kubectl_gangsched.page") / "assets" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def script() -> str:
    """All modules as one script: as the wheel has it, or made of the modules of a checkout."""
    folder = files("kubectl_gangsched.page") / "assets"
    ready = folder / SCRIPT
    if ready.is_file():
        return ready.read_text(encoding="utf-8")

    return bundled(modules_of(folder), MAIN)


def modules_of(folder: Traversable) -> dict[str, str]:
    """The text of each module in a folder, by its file's name."""
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".js")
    }


def bundled(modules: Mapping[str, str], main: str) -> str:
    """The modules that `main` needs, each as a function behind those that it imports. Raises
    BundleError.
    """
    order: list[str] = []
    _visit(main, modules, order, ())
    parts = ['"use strict";', "(() => {", "const modules = {};"]

    for name in order:
        parts.append(f'modules["{name}"] = (() => {{')
        parts.append(_rewritten(name, modules[name]))
        parts.append("})();")

    return "\n".join([*parts, "})();", ""])


def _visit(
    name: str,
    modules: Mapping[str, str],
    order: list[str],
    path: tuple[str, ...],
) -> None:
    if name in order:
        return
    if name in path:
        raise BundleError(f"The modules {' > '.join([*path, name])} import each other.")
    if name not in modules:
        raise BundleError(f"{path[-1] if path else 'The page'} imports {name}, which is none.")

    for imported in _import.finditer(modules[name]):
        _visit(imported["module"], modules, order, (*path, name))

    order.append(name)


def _rewritten(name: str, text: str) -> str:
    """A module as the body of a function that returns its exports."""
    exports: dict[str, str] = {}
    imports: list[str] = []

    def declared(match: re.Match[str]) -> str:
        exports[match["name"]] = match["name"]
        return ""

    def listed(match: re.Match[str]) -> str:
        for local, exported in _pairs(match["names"]):
            exports[exported] = local

        return match["before"]

    def imported(match: re.Match[str]) -> str:
        taken = []
        for exported, local in _pairs(match["names"]):
            taken.append(exported if exported == local else f"{exported}: {local}")

        # Before everything else, wherever a module has them.
        imports.append(f'const {{ {", ".join(taken)} }} = modules["{match["module"]}"];')
        return ""

    text = _comment.sub("", text)
    text = _import.sub(imported, text)
    text = _declared.sub(declared, text)
    text = _list.sub(listed, text)
    rest = _other.search(text)
    if rest is not None:
        raise BundleError(f'{name} has "{rest[0].strip()[:80]}", which cannot be bundled.')

    returned = ", ".join(f"{exported}: {local}" for exported, local in exports.items())
    text = "\n".join([*imports, text.strip()])
    return f"{text}\nreturn {{ {returned} }};"


def _pairs(names: str) -> list[tuple[str, str]]:
    """`a as b, c` as [("a", "b"), ("c", "c")]."""
    pairs = []
    for part in names.split(","):
        words = part.split()
        if words:
            pairs.append((words[0], words[-1]))

    return pairs


def live_page() -> str:
    """The page as the live host serves it: with one script beside it."""
    page = asset(INDEX)
    assert SCRIPT_TAG in page
    return page.replace(SCRIPT_TAG, SCRIPT_TAG.replace(MAIN, "page.js"))

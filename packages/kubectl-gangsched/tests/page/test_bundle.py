"""The modules of the page as one script."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kubectl_gangsched.page import bundle

WHEEL_BYTES = 120_000
PACKAGE = Path(__file__).resolve().parents[2]
#: As the Makefile installs it.
UV = PACKAGE.parents[1] / ".cache" / "uv" / "bin" / "uv"
MODULES = {
    "main.js": (
        "// @ts-check\n"
        "import { add, big as BIG } from './sums.js';\n"
        "import {\n  word,\n  Box,\n} from './words.js';\n"
        "console.log(JSON.stringify([add(1, 2), BIG, word(), new Box().size, [...numbers()]]));\n"
        "import { numbers } from './words.js';\n"
    ),
    "sums.js": "var a=2**10,add=(x,y)=>x+y;export{add,a as big};\n",
    "words.js": (
        "import { add } from './sums.js';\n"
        "export const EXPORTED = 'export const no = 1';\n"
        "export function word() { return `import ${add(3, 4)}`; }\n"
        "export class Box { size = add(1, 1); }\n"
        "export function* numbers() { yield 1; }\n"
        "export async function later() {}\n"
    ),
    "unused.js": "throw new Error();\n",
}


def test_a_bundle_does_what_its_modules_do() -> None:
    """Imports and exports under other names, functions, classes and constants; what nobody imports
    is left out.
    """
    script = bundle.bundled(MODULES, "main.js")
    printed = subprocess.run(  # Node is there for tests of the page only
        ["node", "-"], input=script, capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(printed) == [3, 1024, "import 7", 2, [1]]
    assert "throw" not in script


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import { a } from './none.js';", "main.js imports none.js, which is none."),
        ("import { a } from './b.js';", "The modules main.js > b.js > main.js import each other."),
        ("import x from './b.js';", 'main.js has "import x from'),
        ("import * as x from './b.js';", 'main.js has "import * as x'),
        ("export default 1;", 'main.js has "export default 1;"'),
        ("export let a = 1;", 'main.js has "export let a = 1;"'),
        ('import { a } from "https://example.com/a.js";', 'main.js has "import { a } from'),
    ],
)
def test_what_cannot_be_bundled_is_refused(text: str, why: str) -> None:
    """A module that would do something else as a part of a script."""
    modules = {"main.js": text, "b.js": "import { c } from './main.js';\nexport const a = 1;"}
    with pytest.raises(bundle.BundleError) as raised:
        bundle.bundled(modules, "main.js")
    assert str(raised.value).startswith(why)


def test_the_page_can_be_bundled() -> None:
    """Its own modules; none of its files ends the element that it is in."""
    assert "</script" not in bundle.script().lower()
    assert "</style" not in bundle.asset(bundle.STYLES).lower()
    page = bundle.asset(bundle.INDEX)
    assert page.count(bundle.STYLES_TAG) == page.count(bundle.SCRIPT_TAG) == 1


def test_the_wheel_grows_by_no_more_than_the_page_is_worth(tmp_path: Path) -> None:
    """What it takes in a wheel as it is built, which has one script instead of its modules."""
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, PACKAGE], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}

    scripts = [name for name in contents if name.endswith((".js", ".ts"))]
    assert scripts == ["kubectl_gangsched/page/assets/page.js"]
    assert contents[scripts[0]].decode() == bundle.script()

    without = {name: content for name, content in contents.items() if "/page/" not in name}
    grows = _wheel_bytes(contents) - _wheel_bytes(without)
    print(f"the page takes {grows:,} bytes of the wheel")
    assert grows <= WHEEL_BYTES


def _wheel_bytes(contents: Mapping[str, bytes]) -> int:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        record = []
        for name, content in sorted(contents.items()):
            wheel.writestr(name, content)
            digest = hashlib.sha256(content).digest()
            record.append(f"{name},sha256={base64.urlsafe_b64encode(digest)!r},{len(content)}")

        wheel.writestr("RECORD", "\n".join(record))

    return len(archive.getvalue())

"""What the page takes from others is what its lock file says."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from kubectl_gangsched.page import bundle

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "hack" / "page"


def test_the_bundle_is_that_of_the_lock_file() -> None:
    """`make page-vendor` notes the hashes of what it read and wrote: none has changed since."""
    for line in (FOLDER / "vendor.sha256").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_the_bundle_names_what_is_in_it() -> None:
    """With the versions of the lock file, and the licences."""
    packages = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    (banner,) = re.findall(r"\A/\*! (.*) \*/\n", bundle.asset("vendor.js"))
    for name in ("preact", "@preact/signals", "htm"):
        locked = packages[f"node_modules/{name}"]
        assert f"{name} {locked['version']} ({locked['license']})" in banner

"""The page as one file that needs no server: the document and the page itself in one HTML text.

Invariant: no text of the document is markup. It is there gzipped and in base64, which has none of
the characters that end an element; its checksum tells a damaged file. The only script that runs is
the page's own, by its hash.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from pathlib import Path

import msgspec

from gangsched.snapshots import private_file
from kubectl_gangsched.page import bundle
from kubectl_gangsched.page.document import Document
from kubectl_gangsched.session import CannotAnswer

HEAD = '<meta charset="utf-8">'


def html(document: Document) -> str:
    """The whole file."""
    style = bundle.asset(bundle.STYLES)
    script = bundle.script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    packed = gzip.compress(msgspec.json.encode(document), mtime=0)
    data = base64.b64encode(packed).decode()
    page = bundle.asset(bundle.INDEX)

    for old, new in (
        (HEAD, f'{HEAD}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        (bundle.STYLES_TAG, f"<style>{style}</style>"),
        # Behind the data, which has been parsed by then.
        (bundle.SCRIPT_TAG, ""),
        (
            "</body>",
            f'<script type="application/json" id="document">{data}</script>\n'
            f'<script type="module">{script}</script>\n</body>',
        ),
    ):
        page = _replaced(page, old, new)

    return page


def write(document: Document, path: Path) -> None:
    """Write the file, readable by its owner only: it is as confidential as a snapshot. Raises
    CannotAnswer.
    """
    try:
        private_file.write(path, html(document).encode())
    except OSError as error:
        raise CannotAnswer(f"Cannot write {path}: {error.strerror}.") from error


def _replaced(page: str, old: str, new: str) -> str:
    """The page with `new` in place of `old`, which it has once."""
    before, found, after = page.partition(old)
    assert found, f"the page has no {old}"
    assert old not in after, f"the page has two {old}"
    return f"{before}{new}{after}"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

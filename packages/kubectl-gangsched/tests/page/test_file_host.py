"""The page as one file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gangsched.snapshots import file
from kubectl_gangsched.page import file_host
from kubectl_gangsched.page.document import Document, Moment, PageGang
from kubectl_gangsched.session import CannotAnswer
from tests.page_examples import big, demo, document_in

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\u2028\u2029",
    "]]>",
    "javascript:alert(1)",
    '"><img src=x onerror=alert(1)>',
    "\\u003c/script\\u003e",
    "\x00\x1b[2J\u202e",
)


def test_no_name_gets_out_of_the_data() -> None:
    """Whatever names and messages are: the markup is that of a file without them."""
    gangs = {f"n/{name}": PageGang(name, name, sentence=name) for name in HOSTILE}
    document = Document(source="snapshot", title=HOSTILE[0], moment=Moment(at_s=1, gangs=gangs))
    html = file_host.html(document)
    assert document_in(html) == document
    data = re.compile(r'(?<=id="document">)[A-Za-z0-9+/=]*(?=</script>)')
    empty = file_host.html(Document(source="snapshot", moment=Moment(at_s=1)))
    assert data.sub("", html) == data.sub("", empty)
    assert len(data.findall(html)) == 1


def test_only_the_script_of_the_page_runs() -> None:
    """The policy has the hash of the one script and of the one style sheet, and no other source."""
    html = file_host.html(demo())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    script = re.findall(r"<script type=\"module\">(.*?)</script>", html, re.S)
    style = re.findall(r"<style>(.*?)</style>", html, re.S)
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (*script, *style)
    ]
    assert f"script-src {hashes[0]}; style-src {hashes[1]};" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert html.index("Content-Security-Policy") < html.index("<style>")
    markup = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert not re.search(r"(?:src|href)=", markup.replace('href="data:,"', ""))


def test_equal_documents_are_equal_files() -> None:
    """Nothing of the moment of writing is in there; a large one is small, too."""
    html = file_host.html(big(nodes=500, waiting=1_000))
    assert html == file_host.html(big(nodes=500, waiting=1_000))
    assert len(html) < 400_000


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """Only its owner may read it; what cannot be written is a sentence and leaves nothing."""
    path = tmp_path / "page.html"
    file_host.write(demo(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert document_in(path.read_text()) == demo()
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CannotAnswer, match=r"^Cannot write /no/such/page.html: No such file"):
        file_host.write(demo(), Path("/no/such/page.html"))
    for folder in (".", "/"):
        with pytest.raises(CannotAnswer, match=r"^Cannot write \S+: it is a directory\.$"):
            file_host.write(demo(), Path(folder))


EMPTY = file.SnapshotFile(
    kind=file.KIND,
    format=file.FORMAT,
    gangsched="",
    api_server="",
    taken_at="",
    settings={},
    resources={},
    unread={},
    pod_groups={},
)
WRITERS: dict[str, Callable[[Path], None]] = {
    "page": lambda path: file_host.write(demo(), path),
    "snapshot": lambda path: file.write(path, EMPTY),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_is_for_its_owner_only(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Also in place of one that everybody could read, and whatever the umask; a link stays one."""
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(path)
    before = os.umask(0)
    try:
        write(link)
    finally:
        os.umask(before)

    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() != b"before"
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_a_pipe_gets_the_snapshot(tmp_path: Path) -> None:
    """`-o >(ssh …)`: what is no file is not replaced by one."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as reader:
        file.write(path, EMPTY)
        assert reader.stdout is not None
        assert b"GangschedSnapshot" in gzip.decompress(reader.stdout.read())

    assert path.is_fifo()


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    """Ctrl-C while the file is written: the one of before is there, and no other."""
    path = tmp_path / "page.html"
    path.write_text("before")

    def replace(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write(path)

    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "before"

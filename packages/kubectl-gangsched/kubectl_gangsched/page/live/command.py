"""`ui`: serve the page until ctrl-C, or until nobody has looked at it for an hour.

Invariant: nothing is left: no thread, no port, and no file. The file that opens the browser can be
read by its owner only, since the link lets whoever has it look as the user.
"""

from __future__ import annotations

import html
import os
import shutil
import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from gangsched.console import DONE
from kubectl_gangsched.page.live.feed import Feed
from kubectl_gangsched.page.live.login import user_of
from kubectl_gangsched.page.live.questions import Questions
from kubectl_gangsched.page.live.server import PageServer
from kubectl_gangsched.session import Session
from kubectl_gangsched.terminal import write

IDLE_S = 3_600.0
LOOK_S = 1.0


def ui(session: Session, *, browser: bool) -> int:
    """Serve the page; return the exit code. Raises Fault if the API server does not answer."""
    feed = Feed(session, user_of(session))
    server = PageServer(feed, Questions(session, feed))
    serving = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    feed.start()
    serving.start()

    try:
        with _ended_by_signals(), _opened(server, browser=browser) as link:
            write([f"The page is at {link}", "It can be opened once; ctrl-C ends it."])
            sys.stdout.flush()  # now, also into a pipe
            feed.wait_for_first()
            over = threading.Event()
            while server.idle_s() < IDLE_S:
                over.wait(LOOK_S)

            write(["Nobody has looked at the page for an hour: it has ended."])
    finally:
        feed.end()
        server.shutdown()
        server.server_close()

    return DONE


@contextmanager
def _opened(server: PageServer, *, browser: bool) -> Iterator[str]:
    """The link; a browser is opened by a file, since other users see the arguments of commands."""
    link = f"{server.address}#{server.guard.code}"
    if not browser:
        yield link
        return

    # 0700, and the file in it 0600.
    folder = Path(tempfile.mkdtemp(prefix="gangsched-"))
    file = folder / "open.html"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(
                '<!doctype html><meta charset="utf-8"><title>gangsched</title>'
                f'<meta http-equiv="refresh" content="0; url={html.escape(link)}">'
            )

        server.exchanged = lambda: file.unlink(missing_ok=True)
        opening = threading.Thread(target=_open, args=(file.as_uri(),), daemon=True)
        opening.start()
        yield link
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def _open(address: str) -> None:
    with suppress(webbrowser.Error):
        webbrowser.open(address)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as ctrl-C does, with everything put away."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Only the main thread may do that; tests run the command in another.
        with suppress(ValueError):
            before[number] = signal.signal(number, end)

    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

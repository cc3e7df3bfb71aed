"""Files that are as confidential as a cluster: for their owner only, and whole or not at all.

Invariant: whoever reads the name sees the file of before or the new one, also when the writer is
interrupted, and at no moment may others read it, whatever the umask.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file, in place of one that is there; a pipe or a terminal just gets the data. Raises
    OSError.
    """
    if not path.name or path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return

    # A link stays one; /dev/stdout is a link, too.
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)

        beside.replace(path)
    finally:
        # Also after ctrl-C.
        beside.unlink(missing_ok=True)

#!/usr/bin/env python3
"""Remove from an environment what the daemon never loads: `trim.py SITE-PACKAGES`, in the
Dockerfile's build stage.

Invariant: every pattern must match, so that an upgrade which moves files fails the build instead of
growing the image. tests/test_image.py runs gangsched without what is removed here. The script runs
in the base image, so it uses only the standard library. Not done here: smaller builds of
dependencies; the wheels are those that uv.lock names.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

#: Whole packages, by distribution and by what each installs. rich requires them to print source
#: code and Markdown, and imports them only then. `make sbom` leaves them out as well.
PACKAGES = {
    "pygments": ("pygments", "pygments-*.dist-info"),
    "markdown-it-py": ("markdown_it", "markdown_it_py-*.dist-info"),
    "mdurl": ("mdurl", "mdurl-*.dist-info"),
}
#: Parts of packages.
PARTS = (
    # The generated clients and their models. Only kubeconfigs are read with this package
    # (gangsched/kube/http/sdk.py).
    "kubernetes_asyncio/client/api",
    "kubernetes_asyncio/client/models",
    "kubernetes_asyncio/dynamic",
    "kubernetes_asyncio/leaderelection",
    "kubernetes_asyncio/stream",
    "kubernetes_asyncio/utils",
    "kubernetes_asyncio/watch",
    "kubernetes_asyncio/**/*_test.py",
    # Loaded by name only, and nothing here names them.
    "numpy/f2py",
    "numpy/fft",
    "numpy/polynomial",
    "numpy/random",
    # For compilers, type checkers and NumPy's own tests.
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/_core/_simd.*.so",
    "numpy/_core/_*_tests.*.so",
    "numpy/**/tests",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.c",
)
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"


def unneeded(site: Path) -> Iterator[Path]:
    """All files and folders to remove. Raises SystemExit for a pattern that matches none."""
    for pattern in (*(part for parts in PACKAGES.values() for part in parts), *PARTS):
        found = list(site.glob(pattern))
        if not found:
            sys.exit(
                f"trim: {pattern} matches nothing in {site}; correct hack/image/trim.py for the new"
                " dependencies"
            )
        yield from found
        # What Python compiled stays behind a source that is removed alone.
        yield from (
            cached
            for path in found
            for cached in path.parent.glob(f"__pycache__/{path.stem}.cpython-*.pyc")
        )


def strip(library: Path) -> None:
    """Cut off symbol tables and debug information, which follow the last segment: the loader reads
    segments alone.

    Some wheels are built with them: 12 of uvloop's 14 MB. binutils would do the same, but the base
    image has none.
    """
    data = bytearray(library.read_bytes())
    if not data.startswith(ELF64_LITTLE_ENDIAN):
        return
    header = list(HEADER.unpack_from(data))
    table, size, count = header[5], header[9], header[10]
    ends = [table + size * count]
    for number in range(count):
        _, _, offset, _, _, file_size, _, _ = SEGMENT.unpack_from(data, table + number * size)
        ends.append(offset + file_size)
    # no sections: their offset, count, and the index of their names
    header[6], header[12], header[13] = 0, 0, 0
    HEADER.pack_into(data, 0, *header)
    mode = library.stat().st_mode
    library.write_bytes(data[: max(ends)])
    library.chmod(mode)


def main(site: Path) -> None:
    """Remove, strip, and print what that saved."""
    before = weight(site)
    for path in list(unneeded(site)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # its folder may have gone before it
    for library in site.rglob("*.so*"):
        strip(library)
    print(f"trim: {before / 1e6:.0f} MB are {weight(site) / 1e6:.0f} MB now")


def weight(folder: Path) -> int:
    """The bytes of all files."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    (folder,) = Path(sys.argv[1]).resolve().glob("lib/python3*/site-packages")
    main(folder)

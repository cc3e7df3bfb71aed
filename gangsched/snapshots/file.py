"""The file of a snapshot: gzipped JSON with API objects, reduced to the fields that are read.

Invariant: readers decode the objects as the daemon does (`kube.read`), so both interpret them
alike.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from gangsched.snapshots import private_file


class SnapshotError(Exception):
    """A file that cannot be written, read or played; `str()` is one sentence that says why."""


FORMAT = 1
DECODED_FORMAT = 2
"""Of the daemon's files about internal errors, with objects as they are decoded; also read."""


class PodGroups(msgspec.Struct, rename="camel"):
    """The PodGroups of one API group."""

    version: str
    items: list[dict[str, Any]]


class DecodedList(msgspec.Struct, rename="camel"):
    """The objects of a kind as decoded; None if it cannot be read."""

    kind: str
    api_group: str
    items: list[msgspec.Raw] | None


class SnapshotFile(msgspec.Struct, rename="camel"):
    """All input of a plan.

    `resources` are the objects by plural name, `unread` the plural names that could not be read,
    with reasons. `pod_groups` are by API group; groups that are not served are missing. `settings`
    are the daemon's, as far as known. `gangs` are those of the gangs API, with their last decisions
    and reservations, which no plan reads; None where they could not be read. In a file about an
    internal error, `decoded` has all of this, and `fault` the traceback.
    """

    kind: str
    format: int
    gangsched: str
    api_server: str
    taken_at: str
    settings: dict[str, Any]
    resources: dict[str, list[msgspec.Raw]]
    unread: dict[str, str]
    pod_groups: dict[str, PodGroups]
    decoded: list[DecodedList] = []
    fault: str = ""
    gangs: list[dict[str, Any]] | None = None


KIND = "GangschedSnapshot"
_decoder = msgspec.json.Decoder(SnapshotFile)


def write(path: Path, snapshot: SnapshotFile) -> None:
    """Write the file, readable by its owner only: it has the names of everybody. Raises
    SnapshotError.
    """
    # mtime=0: equal snapshots are equal files.
    packed = gzip.compress(msgspec.json.encode(snapshot), mtime=0)
    try:
        private_file.write(path, packed)
    except OSError as error:
        raise SnapshotError(f"Cannot write {path}: {error.strerror}.") from error


def read(path: Path) -> SnapshotFile:
    """Read the file. Raises SnapshotError if it is not a snapshot, or has a newer format."""
    try:
        snapshot = _decoder.decode(gzip.decompress(path.read_bytes()))
    except OSError as error:  # gzip.BadGzipFile is one
        raise SnapshotError(
            f"Cannot read {path}: {error.strerror or 'it is no snapshot'}."
        ) from error
    except (EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise SnapshotError(
            f"{path} is no snapshot of kubectl gangsched, or is damaged: {error}."
        ) from error

    if snapshot.kind != KIND or snapshot.format > DECODED_FORMAT:
        raise SnapshotError(
            f"{path} is a {snapshot.kind} of format {snapshot.format}, made by gangsched"
            f" {snapshot.gangsched}: replay it with that version."
        )

    return snapshot

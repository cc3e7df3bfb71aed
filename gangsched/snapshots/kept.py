"""Files about internal errors, which the daemon keeps and `replay` plays.

Invariant: a file holds the objects as the daemon has decoded them, so that it costs no request;
like a snapshot, it has no field and no label that is not read. Files are bounded in number and
size, and readable by their owner only.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from gangsched import __version__
from gangsched.model.fault import InternalFault
from gangsched.model.objects import Namespace, Node, Pod, PodGroup, Shape
from gangsched.model.protocol import Applied, Message, Replaced, Unread
from gangsched.settings import Settings
from gangsched.snapshots import file
from gangsched.snapshots.kinds import all_resources
from gangsched.snapshots.redaction import LABELS
from gangsched.telemetry.internal_faults import kept_file

MOST_FILES: Final = 5
MOST_BYTES: Final = 8 * 2**20
MOST_PLAIN_BYTES: Final = 64 * 2**20
"""Before compression; what is larger is not kept, since it would take as much memory again."""


def keep(
    directory: Path,
    fault: InternalFault,
    known: Iterable[Message],
    settings: Settings,
    moment: str,
) -> Path | None:
    """Write a file about a fault at `moment`, in RFC 3339, and remove the oldest; None if it would
    be too large.

    `known` are the messages that tell a new daemon everything. Raises OSError.
    """
    lists = [*_lists(known)]
    named = _named(lists, settings)
    decoded: list[file.DecodedList] = []
    left = MOST_PLAIN_BYTES

    for kind, api_group, items in lists:
        raw: list[msgspec.Raw] = []
        for item in items or ():
            encoded = msgspec.json.encode(_reduced(item, named))
            left -= len(encoded)
            raw.append(msgspec.Raw(encoded))

            if left < 0:
                return None

        decoded.append(
            file.DecodedList(kind.__name__, api_group, raw if items is not None else None)
        )

    taken = file.SnapshotFile(
        kind=file.KIND,
        format=file.DECODED_FORMAT,
        gangsched=__version__,
        api_server="",
        taken_at=moment,
        settings=settings.model_dump(mode="json", exclude_defaults=True),
        resources={},
        unread={},
        pod_groups={},
        decoded=decoded,
        fault=fault.trace,
    )
    packed = gzip.compress(msgspec.json.encode(taken), compresslevel=3, mtime=0)
    if len(packed) > MOST_BYTES:
        return None

    return _write(directory, fault.reference, packed)


def _write(
    directory: Path,
    reference: str,
    packed: bytes,
) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = kept_file(directory, reference)

    with suppress(FileNotFoundError):
        path.unlink()  # by name, so that nothing is written through a link

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(packed)

    files = sorted(
        directory.glob(kept_file(directory, "*").name),
        key=lambda file_path: file_path.lstat().st_mtime_ns,
    )
    for old in files[:-MOST_FILES]:
        old.unlink()

    return path


def messages(taken: file.SnapshotFile) -> Iterator[Message]:
    """The messages that a file was made of. Raises msgspec.MsgspecError."""
    kinds: dict[str, type[Any]] = {"PodGroup": PodGroup}
    for resource in all_resources().values():
        kinds[resource.kind.__name__] = resource.kind

    shapes: dict[tuple[Any, ...], Shape] = {}

    for decoded_list in taken.decoded:
        kind = kinds[decoded_list.kind]
        if decoded_list.items is None:
            yield Unread(kind, decoded_list.api_group)
            continue

        items = msgspec.json.decode(msgspec.json.encode(decoded_list.items), type=list[kind])  # type: ignore[valid-type]
        if kind is Pod:
            items = [_interned(item, shapes) for item in items]

        yield Replaced(kind, tuple(items), decoded_list.api_group)


def _lists(known: Iterable[Message]) -> Iterator[tuple[type[Any], str, Sequence[Any] | None]]:
    """(kind, API group, its objects, None if it is unread) of everything that is known."""
    loose: dict[type[Any], list[Any]] = {}
    for message in known:
        match message:
            case Applied(item=item):
                loose.setdefault(type(item), []).append(item)
            case Replaced(kind=kind, items=items, api_group=api_group):
                yield kind, api_group, [*loose.pop(kind, ()), *items]
            case Unread(kind=kind, api_group=api_group):
                yield kind, api_group, None

    for kind, applied in loose.items():
        yield kind, "", applied


def _named(
    lists: Iterable[tuple[type[Any], str, Sequence[Any] | None]],
    settings: Settings,
) -> Set[str]:
    """Every text that may name a label: all texts but those of labels themselves."""
    texts = {*_texts(settings.model_dump(mode="json"))}
    shapes: set[Shape] = set()
    stated: set[tuple[tuple[str, str], ...]] = set()

    for kind, _, items in lists:
        if kind is Pod:
            shapes.update(pod.shape for pod in items or ())
            stated.update(pod.gang_metadata for pod in items or ())
        elif kind not in {Node, Namespace}:
            unlabelled = [_unlabelled(item) for item in items or ()]
            texts.update(_texts(msgspec.to_builtins(unlabelled)))

    texts.update(_texts([msgspec.to_builtins(shape) for shape in shapes]))
    # A value may list several labels.
    for pairs in stated:
        for _, value in pairs:
            words = value.replace(",", " ").split()
            texts.update(words)

    return texts


def _unlabelled(item: Any) -> Any:
    if hasattr(item, "labels"):
        return structs.replace(item, labels={})

    return item


def _reduced(item: Any, named: Set[str]) -> Any:
    """An object without labels that nothing names, and without messages, which may
    quote anything.
    """
    if getattr(item, "labels", None):
        item = structs.replace(
            item,
            labels={key: value for key, value in item.labels.items() if key in LABELS | named},
        )

    if isinstance(item, Pod):
        return structs.replace(item, condition=None, rejection="")
    if isinstance(item, PodGroup):
        return structs.replace(item, status={})

    return item


def _interned(
    pod: Pod,
    shapes: dict[tuple[Any, ...], Shape],
) -> Pod:
    """The pod with the one object of its shape, by which shapes are compared."""
    shape = pod.shape
    key = tuple(getattr(shape, name) for name in SHAPE_FIELDS)
    return structs.replace(pod, shape=shapes.setdefault(key, shape))


SHAPE_FIELDS: Final = tuple(slot for slot in Shape.__slots__ if slot != "__weakref__")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value

"""kopf, imported without the client libraries that it finds beside it.

Invariant: kopf imports `kubernetes_asyncio.client`, where it is installed, for the types of two classes that handlers
may return. Ours return none, and the package is 700 models: 170 ms and 35 MiB of every process. kopf does without where
it is not installed, so it is not to be found meanwhile.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

CLIENTS = ("kubernetes", "kubernetes_asyncio", "kubernetes_asyncio.client")


@contextmanager
def _not_to_be_found() -> Iterator[None]:
    modules = cast(dict[str, ModuleType | None], sys.modules)  # None: there is no such module
    kept = {name: modules[name] for name in CLIENTS if name in modules}
    modules.update(dict.fromkeys(CLIENTS))
    try:
        yield
    finally:
        for name in CLIENTS:
            modules.pop(name, None)
        modules.update(kept)


with _not_to_be_found():
    importlib.import_module("kopf")

import kopf as kopf  # noqa: E402, PLC0414  (the same, with its types)

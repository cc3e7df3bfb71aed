"""Import kopf without the client libraries that it would use if they are installed.

kopf imports `kubernetes_asyncio.client`, if it is installed, for the types of two classes that handlers may return.
gangsched's handlers return none of these, and importing the package's 700 models costs every process 170 ms and 35 MiB.
kopf works without that package, so it is hidden during the import.
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

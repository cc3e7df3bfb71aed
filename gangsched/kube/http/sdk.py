"""The part of kubernetes_asyncio that reads configurations, without its clients and its 700 models.

Invariant: the exports are kubernetes_asyncio's own, unchanged. A plain import runs the package's
`client`, which takes 190 ms and 35 MiB at every start, so it is bypassed. If the bypass fails, the
plain import is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

ROOT = "kubernetes_asyncio"
CLIENT = "kubernetes_asyncio.client"


def load() -> tuple[Any, Any]:
    """`kubernetes_asyncio.client.Configuration` and `kubernetes_asyncio.config`.

    The bypass has no lasting effect: a later import of kubernetes_asyncio loads the whole package.
    """
    with _some_home():
        if ROOT not in sys.modules:
            try:
                return _pass_by()
            except (ImportError, AttributeError):
                for name in [
                    name for name in sys.modules if name == ROOT or name.startswith(f"{ROOT}.")
                ]:
                    del sys.modules[name]

        config = importlib.import_module(f"{ROOT}.config")
        return importlib.import_module(CLIENT).Configuration, config


@contextmanager
def _some_home() -> Iterator[None]:
    """A home directory for the length of an import.

    kubernetes_asyncio asks `Path.home()` when it is imported, which raises where HOME is unset and
    the UID has no passwd entry: in a container that runs under a number.
    """
    if os.path.expanduser("~") != "~":
        yield
        return

    os.environ["HOME"] = "/"
    try:
        yield
    finally:
        del os.environ["HOME"]


def _pass_by() -> tuple[Any, Any]:
    """Import the two modules while their packages stand there unexecuted."""
    try:
        _stand_in(ROOT)
        client = _stand_in(CLIENT)
        configuration = importlib.import_module(f"{CLIENT}.configuration").Configuration

        # the latter is named, but not used
        client.__dict__.update(Configuration=configuration, ApiClient=None)
        return configuration, importlib.import_module(f"{ROOT}.config")
    finally:
        sys.modules.pop(ROOT, None)
        sys.modules.pop(CLIENT, None)


def _stand_in(name: str) -> ModuleType:
    """A package that has its path and no contents."""
    spec = find_spec(name)
    if spec is None:
        raise ImportError(name)

    sys.modules[name] = module = module_from_spec(spec)
    return module


Configuration, config = load()

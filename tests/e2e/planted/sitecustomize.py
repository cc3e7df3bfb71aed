"""Plants what `PLANT` names into the daemon: "module:function", which raises or ends the process
for one namespace.

`PLANT_DOES` is "raise", "kill" (SIGKILL), "exhaust" (MemoryError), "recurse" or "hang". The
function is patched once its module is imported, since this runs before anything else is.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAMESPACE = os.environ.get("PLANT_NAMESPACE", "bad")
DOES = os.environ.get("PLANT_DOES", "raise")


def _is_about(value: Any, depth: int = 3) -> bool:
    """Whether a value is, or has, something of the namespace."""
    if getattr(value, "namespace", None) == NAMESPACE:
        return True
    text = getattr(value, "id", None) or getattr(value, "group", None)
    if isinstance(text, str) and text.split(":")[-1].startswith(f"{NAMESPACE}/"):
        return True
    return (
        bool(depth)
        and isinstance(value, list | tuple)
        and any(_is_about(each, depth - 1) for each in value)
    )


def _recurse(number: int) -> int:
    return _recurse(number + 1) + 1


def _spoil() -> None:
    if DOES == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif DOES == "exhaust":
        raise MemoryError
    elif DOES == "recurse":
        _recurse(0)
    elif DOES == "hang":
        while True:
            pass
    raise RuntimeError("planted")


def _plant(module: ModuleType, path: str) -> None:
    *owners, name = path.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    real = getattr(owner, name)

    def planted(*given: Any, **named: Any) -> Any:
        if any(map(_is_about, (*given, *named.values()))):
            _spoil()
        return real(*given, **named)

    setattr(owner, name, planted)


class _Planter(MetaPathFinder, Loader):
    """Loads one module and patches it."""

    def __init__(self, target: str) -> None:
        module, _, self._path = target.partition(":")
        self._name = f"gangsched.{module}"
        self._spec: ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = self._spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        real = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            real(module)
            _plant(module, self._path)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if planted_target := os.environ.get("PLANT"):
    sys.meta_path.insert(0, _Planter(planted_target))

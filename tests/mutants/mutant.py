"""What a planted bug is: a function or a constant of the package by its name, and what behaves
wrongly in its place.

Naming the behaviour instead of a line lets the code around it be written again. Only a bug that
cannot be reached from outside a function wraps a helper of it, or hides part of what it is given.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import msgspec

Make = Callable[[Any], Any]
OURS = ("gangsched.", "kubectl_gangsched.", "kubernetes_cel.")
MUTANTS: list[Mutant] = []
"""All planted bugs, in the order in which their modules are imported."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug.

    `target` is "module:function", "module:Class.method" or "module:CONSTANT" below `gangsched`, or
    of another package of ours. `make` takes what is there and returns what is put there. In
    `tests`, a path from the folder of tests on, some test must fail then.
    """

    name: str
    rule: str
    target: str
    make: Make
    tests: str

    def place(self) -> tuple[Any, str]:
        """The module or class that is patched, and the name in it. Raises ImportError or
        AttributeError.
        """
        module, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(_module_name(module))
        for each in owners:
            owner = getattr(owner, each)
        inspect.getattr_static(owner, name)
        return owner, name

    def plant(self) -> None:
        """Put the bug into this process, also where the function was imported by its name."""
        owner, name = self.place()
        found = inspect.getattr_static(owner, name)
        planted = self.make(found)
        if hasattr(planted, "__set_name__"):
            planted.__set_name__(owner, name)
        setattr(owner, name, planted)
        # A function or table of another module is meant as this one uses it; one of its own as
        # everybody does.
        if getattr(found, "__module__", owner.__name__) != owner.__name__ or isinstance(
            found, (int, float, str)
        ):
            return
        for module in [each for key, each in sys.modules.items() if key.startswith(OURS)]:
            for key in [key for key, value in vars(module).items() if value is found]:
                setattr(module, key, planted)


def _module_name(module: str) -> str:
    """The full name of a target's module."""
    if module.startswith(OURS):
        return module

    return f"gangsched.{module}"


def bug(rule: str, target: str, tests: str) -> Callable[[Make], Make]:
    """Plant what the decorated function makes of `target`; its name says how the package behaves
    then.
    """

    def known(make: Make) -> Make:
        assert isinstance(make, FunctionType)
        MUTANTS.append(Mutant(make.__name__.replace("_", " "), rule, target, make, tests))
        return make

    return known


@contextmanager
def swapped(owner: Any, **values: Any) -> Iterator[None]:
    """Other attributes of a module, class or object, while the context lasts."""
    shared = isinstance(owner, (type, ModuleType))
    before = {name: vars(owner)[name] if shared else getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def replace(value: Any, **changes: Any) -> Any:
    """The value with other fields, whether it is a struct or a dataclass: a bug that raises instead
    would be found by any test.
    """
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)

    return dataclasses.replace(value, **changes)

"""Exceptions planted in the code: a function raises while it works for a group, or for all
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any
from unittest.mock import patch

from gangsched.model.gang import namespace_of
from tests.world import World

DEPTH = 3
ANSWERED = "g-"
"""Answers name no namespace: pods whose uid begins so are those of the gang that raises."""


class PlantedError(Exception):
    """What a plant raises."""


class Plant:
    """A function of the package that raises whenever it works for a namespace that `spoils` names.

    `hits` counts how often it did. A function that has no argument about a group is taken to work
    for the group that the plan decides at that moment.
    """

    def __init__(self, target: str, spoils: Callable[[str], bool]) -> None:
        module, _, self._name = target.partition(":")
        *owners, self._attribute = self._name.split(".")
        self._owner: Any = import_module(f"gangsched.{module}")
        for each in owners:
            self._owner = getattr(self._owner, each)
        self._spoils = spoils
        self.hits = 0
        self.error: type[BaseException] = PlantedError

    @contextmanager
    def planted(self, world: World) -> Iterator[Plant]:
        """Inside the context, the function raises."""
        real = getattr(self._owner, self._attribute)

        @wraps(real)
        def planted(*given: Any, **named: Any) -> Any:
            at_work = world.state.bulkhead.at_work.group
            about = {*_namespaces((*given, *named.values()), DEPTH)} or {namespace_of(at_work)}
            if any(map(self._spoils, about - {""})):
                self.hits += 1
                raise self.error(f"planted in {self._name}")
            return real(*given, **named)

        with patch.object(self._owner, self._attribute, planted):
            yield self


def _namespaces(values: Any, depth: int) -> Iterator[str]:
    """The namespaces of the groups, gangs and pods among these values."""
    for value in values:
        if isinstance(value, str):
            continue
        if isinstance(value, list | tuple | set | frozenset):
            yield from _namespaces(value, depth - 1) if depth else ()
        elif isinstance(value, dict):
            yield from _namespaces((*value.keys(), *value.values()), depth - 1) if depth else ()
        else:
            yield from _of(value)


def _of(value: Any) -> Iterator[str]:
    kind = type(value).__name__
    if kind == "Pod":
        yield value.namespace
    elif kind == "Member":
        yield value.pod.namespace
    elif kind in {"Gang", "Group", "GangRecord", "GroupRecord"}:
        yield namespace_of(value.id)
    elif kind in {"Verdict", "Reserved"}:
        yield namespace_of(value.group)
    elif kind == "Head":
        yield namespace_of(value.group.id)
    elif kind == "Placement":
        yield value.pod.namespace
    elif kind in {"Bound", "ClaimsWritten"} and value.uid.startswith(ANSWERED):
        yield "bad"

"""Cached answers of selectors about devices, keyed by the parts of a device that the selector
reads.

Invariant: a selector is evaluated once for all devices that are equal in these parts, and compiled
once. Both caches are bounded: a full cache is cleared.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kubernetes_cel.faults import SelectorError, UnknownToSelectors
from kubernetes_cel.operators import Value
from kubernetes_cel.programs import Path, Program

Answer: TypeAlias = bool | str
"""Whether the device matches, or the message of the runtime error."""

# Compiling takes up to 19 ms for a hostile selector (decision 0083).
MOST_PROGRAMS: Final = 4096
MOST_ANSWERS: Final = 2**18
_ABSENT: Final = ("absent",)


@dataclass(slots=True)
class SelectorAnswers:
    """Compiled selectors and their answers; `evaluations` counts cache misses."""

    evaluations: int = 0
    _programs: dict[str, Program | str] = field(default_factory=dict)
    _answers: dict[Hashable, Answer] = field(default_factory=dict)

    def unknown(self, source: str) -> str:
        """The part of the selector that gangsched does not support, "" if it supports the whole
        selector.
        """
        program = self._program(source)
        return program if isinstance(program, str) else ""

    def answer(self, source: str, device: Mapping[str, Value]) -> Answer:
        """The answer of a selector that is fully supported; `device` has the fields of CEL's
        `device`.
        """
        program = self._program(source)
        if isinstance(program, str):
            return program

        # The parts that are read instead of the device: thousands of equal GPUs are one evaluation.
        key = (source, *(_part(path, device) for path in program.reads))
        known = self._answers.get(key)
        if known is None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()

            self.evaluations += 1
            known = self._answers[key] = _evaluated(program, device)

        return known

    def _program(self, source: str) -> Program | str:
        program = self._programs.get(source)
        if program is None:
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()

            try:
                program = Program(source)
            except UnknownToSelectors as unknown:
                # A text in place of a program: what is unsupported is remembered, too.
                program = str(unknown)

            self._programs[source] = program

        return program


def _evaluated(program: Program, device: Mapping[str, Value]) -> Answer:
    try:
        return program.matches(device)
    except SelectorError as error:
        return str(error)


def _part(path: Path, device: Mapping[str, Value]) -> Hashable:
    """Key of the value at a path of the device; equal values have equal keys, and 1 and true are
    not equal.
    """
    part: Value = device
    for name in path if path != ("device",) else ():
        if not isinstance(part, Mapping) or name not in part:
            return _ABSENT

        part = part[name]

    return _hashable(part)


def _hashable(value: Value) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((name, _hashable(value[name])) for name in sorted(value))

    # True == 1 in Python, and both would be the same key.
    return (type(value) is bool, value)

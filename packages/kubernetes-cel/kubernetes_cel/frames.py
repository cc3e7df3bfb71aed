"""Evaluations of a selector, and operators as closures over their operands.

Invariant: work that grows with the operands is charged before it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kubernetes_cel.faults import NO_OVERLOAD, SelectorError, TooManyStepsError
from kubernetes_cel.operators import (
    Charge,
    Value,
    arithmetic,
    contains,
    different,
    equal,
    less,
    negated,
)
from kubernetes_cel.versions import SemanticVersion

# The costliest of 36 hostile selectors took 23 ms to evaluate (decision 0083); ordinary ones take
# microseconds.
MOST_STEPS: Final = 50_000
"""Steps of an evaluation: nodes of the tree, once an iteration, and characters."""


class Frame:
    """One evaluation: the device, the variables of macros, and the number of steps left."""

    __slots__ = ("device", "left", "variables")

    def __init__(self, device: Mapping[str, Value], variables: int) -> None:
        self.device = device
        # By place, not by name: places are assigned when the selector is compiled.
        self.variables: list[Value] = [None] * variables
        self.left = MOST_STEPS

    def charge(self, steps: int) -> None:
        """Count steps of work. Raises TooManyStepsError."""
        self.left -= steps
        if self.left < 0:
            raise TooManyStepsError


Step: TypeAlias = Callable[[Frame], Value]


def _operator(function: Callable[[Value, Value, Charge], Value]) -> Callable[[list[Step]], Step]:
    def compiled(operands: list[Step]) -> Step:
        left, right = operands
        return lambda frame: function(left(frame), right(frame), frame.charge)

    return compiled


def _sum(operands: list[Step]) -> Step:
    left, right = operands

    def added(frame: Frame) -> Value:
        one = left(frame)
        other = right(frame)
        if isinstance(one, str | tuple) and isinstance(other, str | tuple):
            # Copying characters is cheaper than copying references to values.
            frame.charge(1 + (len(one) + len(other)) // (16 if isinstance(one, str) else 1))

        return arithmetic("+", one, other)

    return added


def _with_sign(sign: str) -> Callable[[list[Step]], Step]:
    def compiled(operands: list[Step]) -> Step:
        if len(operands) == 1:
            only = operands[0]
            return lambda frame: negated(only(frame))

        left, right = operands
        return lambda frame: arithmetic(sign, left(frame), right(frame))

    return compiled


def _not(operands: list[Step]) -> Step:
    (operand,) = operands

    def opposite(frame: Frame) -> bool:
        value = operand(frame)
        if type(value) is not bool:
            raise SelectorError(NO_OVERLOAD)

        return not value

    return opposite


def membership(operands: list[Step], *, constants: bool = False) -> Step:
    """The operator `in`. In a list of `constants`, CEL looks values up by hash; a semantic version
    has none, which is an error.
    """
    value, container = operands

    def found(frame: Frame) -> bool:
        item = value(frame)
        items = container(frame)

        if constants and isinstance(item, SemanticVersion):
            raise SelectorError("a version cannot be looked up in a list of constants")

        return contains(items, item, frame.charge)

    return found


OPERATORS: Final[Mapping[str, Callable[[list[Step]], Step]]] = {
    "==": _operator(equal),
    "!=": _operator(different),
    "<": _operator(less),
    ">": _operator(lambda left, right, charge: less(right, left, charge)),
    # `less` first, because it is the one that raises for values without an order.
    "<=": _operator(
        lambda left, right, charge: less(left, right, charge) or equal(left, right, charge)
    ),
    ">=": _operator(
        lambda left, right, charge: less(right, left, charge) or equal(left, right, charge)
    ),
    "+": _sum,
    "-": _with_sign("-"),
    "*": _with_sign("*"),
    "/": _with_sign("/"),
    "%": _with_sign("%"),
    "!": _not,
    "in": membership,
}

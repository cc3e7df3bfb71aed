"""Equality, order, arithmetic and look-ups of CEL's values.

Values are bool, int of 64 bits, float, str, None, tuple, Quantity, SemanticVersion, Optional and
mappings. `map_key` converts values to keys of a mapping, since True equals 1 in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kubernetes_cel.faults import NO_OVERLOAD, SelectorError
from kubernetes_cel.versions import Quantity, SemanticVersion

Value: TypeAlias = Any
Charge: TypeAlias = Callable[[int], None]
"""Counts steps. Raises TooManyStepsError."""
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_COMPARED_A_STEP: Final = 256
"""Characters: texts are compared much faster than values."""


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Value = None) -> None:
        self.present = present
        self.value = value


NONE: Final = Optional(False)


class DomainMap(dict[Value, Value]):
    """Attributes or capacities by domain. For a domain that the device lacks the value is an empty
    map, as in kube-scheduler.
    """

    def __missing__(self, key: Value) -> Mapping[Value, Value]:
        if type(key) is str:
            return _EMPTY

        raise KeyError(key)


_EMPTY: Final[Mapping[Value, Value]] = {}


def number(value: Value) -> bool:
    """Whether the value is an integer or a float; a bool is neither."""
    return type(value) in {int, float}


def equal(left: Value, right: Value, charge: Charge) -> bool:
    """CEL's equality: values of different types are unequal, except numbers, which are compared by
    value.

    Each pair of items is charged: a list that contains the same list twice, 40 levels deep, has
    2^40 pairs. Raises SelectorError if a quantity or version on the left is compared with another
    type.
    """
    if left is None or right is None:
        return left is right
    if number(left) and number(right):
        return bool(left == right)

    if isinstance(left, Quantity | SemanticVersion):
        if type(left) is not type(right) or (isinstance(right, Quantity) and right.computed):
            raise SelectorError(NO_OVERLOAD)

        return bool(left == right)

    if type(left) in {bool, str}:
        if type(left) is str:
            charge(len(left) // _COMPARED_A_STEP)

        # Not isinstance: bool is an int in Python, and 1 must not equal true.
        return type(left) is type(right) and bool(left == right)

    charge(1 + (len(left) if isinstance(left, tuple | Mapping) else 0))
    if isinstance(left, tuple):
        if not isinstance(right, tuple) or len(left) != len(right):
            return False

        return all(equal(one, other, charge) for one, other in zip(left, right, strict=True))

    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and len(left) == len(right)
            and all(
                key in right and equal(value, right[key], charge) for key, value in left.items()
            )
        )
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.present == right.present and (
            not left.present or equal(left.value, right.value, charge)
        )

    return False


def different(left: Value, right: Value, charge: Charge) -> bool:
    """`left != right`. In CEL this is not an error, even where `left == right` is one."""
    try:
        return not equal(left, right, charge)
    except SelectorError:
        return True


def less(left: Value, right: Value, charge: Charge) -> bool:
    """`left < right`. Raises SelectorError for values without an order."""
    if any(type(operand) is float and math.isnan(operand) for operand in (left, right)):
        raise SelectorError("NaN values cannot be ordered")

    if (number(left) and number(right)) or (
        type(left) is type(right) and type(left) in {str, bool}
    ):
        if type(left) is str:
            charge(len(left) // _COMPARED_A_STEP)

        return bool(left < right)

    raise SelectorError(NO_OVERLOAD)


def map_key(value: Value) -> Value:
    """Convert a value to a key of a mapping. Raises SelectorError for values that cannot
    be keys.
    """
    if type(value) is bool:
        return ("bool", value)
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) in {int, str}:
        return value

    raise SelectorError(f"unsupported key type: {type(value).__name__}")


def keys(container: Mapping[Value, Value]) -> Iterator[Value]:
    """The keys of a mapping as values."""
    return (key[1] if isinstance(key, tuple) else key for key in container)


def find(container: Value, key: Value) -> Optional:
    """The value at a key or an index, absent if there is none. Raises SelectorError if the
    container has neither keys nor indexes.
    """
    if isinstance(container, tuple):
        if type(key) is float and key.is_integer():
            key = int(key)

        if type(key) is not int:
            raise SelectorError(f"unsupported index type: {type(key).__name__}")
        if 0 <= key < len(container):
            return Optional(True, container[key])

        return NONE

    if isinstance(container, Mapping):
        try:
            return Optional(True, container[map_key(key)])
        except KeyError:
            return NONE

    raise SelectorError(NO_OVERLOAD)


def get(container: Value, key: Value) -> Value:
    """The value at a key or an index. Raises SelectorError if there is none."""
    optional = find(container, key)
    if not optional.present:
        why = "index out of bounds" if isinstance(container, tuple) else "no such key"
        raise SelectorError(f"{why}: {str(key)[:64]}")

    return optional.value


def contains(container: Value, value: Value, charge: Charge) -> bool:
    """`value in container`."""
    if isinstance(container, Mapping):
        try:
            return map_key(value) in container
        except SelectorError:
            return False

    if isinstance(container, tuple):
        for item in container:
            charge(1)
            try:
                if equal(item, value, charge):
                    return True
            except SelectorError:  # as CEL: an item of another type is not the one
                continue

        return False

    raise SelectorError(NO_OVERLOAD)


def arithmetic(sign: str, left: Value, right: Value) -> Value:
    """Sum, difference, product, quotient or remainder of two numbers of the same type, or the
    concatenation of two texts or lists.
    """
    kinds = (type(left), type(right))
    if kinds == (int, int):
        return _integers(sign, left, right)
    if kinds == (float, float) and sign != "%":
        return _floats(sign, left, right)
    if sign == "+" and kinds in {(str, str), (tuple, tuple)}:
        return left + right

    raise SelectorError(NO_OVERLOAD)


def negated(value: Value) -> Value:
    """`-value`."""
    if type(value) is int:
        return _bounded(-value)
    if type(value) is float:
        return -value

    raise SelectorError(NO_OVERLOAD)


def _integers(sign: str, left: int, right: int) -> int:
    if sign in "/%" and right == 0:
        raise SelectorError("division by zero" if sign == "/" else "modulus by zero")

    match sign:
        case "+":
            return _bounded(left + right)
        case "-":
            return _bounded(left - right)
        case "*":
            return _bounded(left * right)

    # Python's // rounds down, Go's division towards zero.
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # towards zero
    _bounded(quotient)
    return quotient if sign == "/" else left - quotient * right


def _floats(sign: str, left: float, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right

    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan

        return math.copysign(math.inf, left) * math.copysign(1, right)

    return left / right


def _bounded(value: int) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise SelectorError("integer overflow")

    return value

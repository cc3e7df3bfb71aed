"""The functions and methods that selectors may call.

Invariant: a function charges its work before it runs. gangsched does not support functions outside
`FUNCTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase
from typing import Final, TypeAlias

from kubernetes_cel.amounts import NANOS
from kubernetes_cel.faults import NO_OVERLOAD, SelectorError, UnknownToSelectors
from kubernetes_cel.operators import NONE, Charge, Optional, Value, contains, less
from kubernetes_cel.patterns import MOST_STATES, Pattern, pattern
from kubernetes_cel.versions import Quantity, SemanticVersion, normalized, quantity, version

Function: TypeAlias = Callable[..., Value]

_CHARACTERS_A_STEP: Final = 16
# Hostile texts took seconds while a pattern that is made during the evaluation was free of charge.
_STEPS_A_STATE: Final = 8
"""Cost of making one state of a pattern."""
_STEPS_A_VALUE: Final = 16
"""Cost of parsing a quantity or version."""
_LONGEST_NUMBER: Final = 64
_LARGEST_INT: Final = 2**63 - 1
_LEAST_INT: Final = -(2**63)
_BEYOND_INT: Final = 2.0**63
_HAVE_ZEROS: Final = frozenset({bool, int, float, str, tuple})
"""Types of which a value may be zero or empty, beside maps."""


def _need(value: Value, *types: type) -> None:
    if type(value) not in types:
        raise SelectorError(NO_OVERLOAD)


def _length(value: Value) -> int:
    if isinstance(value, str | tuple | Mapping):
        return len(value)

    return 0


def _charge(charge: Charge, *values: Value) -> None:
    characters = sum(map(_length, values))
    charge(1 + characters // _CHARACTERS_A_STEP)


def _size(charge: Charge, value: Value) -> int:
    if not isinstance(value, str | tuple | Mapping):
        raise SelectorError(NO_OVERLOAD)

    return len(value)


def _text_method(method: Callable[..., Value], *types: type) -> Function:
    """A method of texts with arguments of these types."""

    def called(charge: Charge, text: Value, *arguments: Value) -> Value:
        _need(text, str)
        if len(arguments) != len(types):
            raise SelectorError(NO_OVERLOAD)

        for argument, kind in zip(arguments, types, strict=True):
            _need(argument, kind)

        _charge(charge, text, *arguments)
        return method(text, *arguments)

    return called


def _matches(charge: Charge, text: Value, source: Value) -> bool:
    _need(text, str)
    _need(source, str)
    charge(1 + len(source))

    try:
        # A constant pattern is compiled with the selector; this one depends on the device.
        compiled = pattern(source)
    except UnknownToSelectors as unknown:  # a pattern that is made while the selector is evaluated
        # As much as the largest pattern: how far the compilation got is unknown.
        charge(_STEPS_A_STATE * MOST_STATES)
        raise SelectorError(f"uses {unknown}, which gangsched does not support") from unknown

    charge(_STEPS_A_STATE * compiled.size)
    return compiled.found(text, charge)


def found(charge: Charge, text: Value, compiled: Pattern) -> bool:
    """Whether a pattern matches any part of a text. Raises SelectorError if the value is not a
    text.
    """
    _need(text, str)
    return compiled.found(text, charge)


_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_UPPER: Final = str.maketrans(ascii_lowercase, ascii_uppercase)


def _position(charge: Charge, text: Value, part: Value, start: Value, *, last: bool) -> int:
    if isinstance(text, tuple):
        if start is not None:
            raise SelectorError(NO_OVERLOAD)

        charge(1 + len(text))
        return _place(charge, text, part, last=last)

    _need(text, str)
    _need(part, str)
    _charge(charge, text, part)

    if start is not None:
        _need(start, int)
        if start < 0:
            raise SelectorError(f"index out of range: {start}")
        if not part:
            return min(int(start), len(text))
        if start >= len(text):
            return -1

    if not last:
        return int(text.find(part, start or 0))

    if start is None:
        return int(text.rfind(part))

    # The match may begin at `start` and extend beyond it.
    return int(text.rfind(part, 0, start + len(part)))


def _place(charge: Charge, items: tuple[Value, ...], wanted: Value, *, last: bool) -> int:
    """The first or last place of an item, -1 if there is none; each comparison is charged."""
    place = -1
    for at, item in enumerate(items):
        is_equal = contains((item,), wanted, charge)
        if is_equal and (last or place < 0):
            place = at

    return place


def _index_of(charge: Charge, text: Value, part: Value, start: Value = None) -> int:
    return _position(charge, text, part, start, last=False)


def _last_index_of(charge: Charge, text: Value, part: Value, start: Value = None) -> int:
    return _position(charge, text, part, start, last=True)


def _replace(charge: Charge, text: Value, old: Value, new: Value, most: Value = -1) -> str:
    for value in (text, old, new):
        _need(value, str)

    _need(most, int)
    _charge(charge, text)

    # Go replaces "" before each character and at the end, as Python does.
    count = text.count(old) if old else len(text) + 1
    if most >= 0:
        count = min(count, most)

    charge(1 + count * len(new) // _CHARACTERS_A_STEP)

    return str(text.replace(old, new, most))


def _split(charge: Charge, text: Value, separator: Value, most: Value = -1) -> tuple[str, ...]:
    _need(text, str)
    _need(separator, str)
    _need(most, int)
    charge(1 + len(text))

    # Go's SplitN: 0 gives nothing, 1 the whole text; Python's maxsplit counts cuts instead.
    if most == 0:
        return ()
    if most == 1:
        return (text,)

    cuts = most - 1
    if separator:
        return tuple(text.split(separator, cuts if most > 0 else -1))
    if most < 0 or most >= len(text):
        return tuple(text)

    return (*text[:cuts], text[cuts:])


def _substring(charge: Charge, text: Value, start: Value, end: Value = None) -> str:
    _need(text, str)
    _need(start, int)
    end = len(text) if end is None else end
    _need(end, int)

    for place in (start, end):
        if not 0 <= place <= len(text):
            raise SelectorError(f"index out of range: {place}")

    if start > end:
        raise SelectorError(f"invalid substring range. start: {start}, end: {end}")

    _charge(charge, text)
    return str(text[start:end])


def _char_at(charge: Charge, text: Value, at: Value) -> str:
    _need(text, str)
    _need(at, int)

    # The end is a valid index and gives "" (cel-go, strings.charAt).
    if not 0 <= at <= len(text):
        raise SelectorError(f"index out of range: {at}")

    return str(text[at : at + 1])


def _join(charge: Charge, items: Value, separator: Value = "") -> str:
    _need(items, tuple)
    _need(separator, str)

    for item in items:
        _need(item, str)

    characters = sum(map(len, items))
    separators = len(items) * len(separator)
    charge(1 + len(items) + (characters + separators) // _CHARACTERS_A_STEP)

    return str(separator.join(items))


def _compare(charge: Charge, left: Value, right: Value) -> int:
    if type(left) is not type(right):
        raise SelectorError(NO_OVERLOAD)
    if not isinstance(left, Quantity | SemanticVersion):
        raise SelectorError(NO_OVERLOAD)

    if left == right:
        return 0

    return 1 if left > right else -1


def _semver(charge: Charge, text: Value, normalize: Value = False) -> SemanticVersion:
    _need(text, str)
    _need(normalize, bool)
    charge(_STEPS_A_VALUE)
    _charge(charge, text)

    if normalize:
        text = normalized(text)

    return version(text)


def _quantity(charge: Charge, text: Value) -> Quantity:
    _need(text, str)
    charge(_STEPS_A_VALUE)
    return quantity(text)


def _succeeds(function: Function) -> Function:
    def called(charge: Charge, text: Value, *arguments: Value) -> bool:
        _need(text, str)
        for argument in arguments:
            _need(argument, bool)

        try:
            function(charge, text, *arguments)
        except SelectorError:
            return False

        return True

    return called


def _part(at: int) -> Function:
    def called(charge: Charge, value: Value) -> int:
        _need(value, SemanticVersion)
        number = int(value.release[at])
        if number > _LARGEST_INT:
            raise SelectorError("integer overflow")

        return number

    return called


def _of_quantity(function: Callable[..., Value]) -> Function:
    def called(charge: Charge, value: Value, *arguments: Value) -> Value:
        _need(value, Quantity)
        return function(value, *arguments)

    return called


def _to_int(charge: Charge, value: Value) -> int:
    if type(value) is float:
        # Open at both ends as in cel-go: 2^63 as a double is out of range, and so is -2^63.
        is_number = not math.isnan(value)
        if not is_number or abs(value) >= _BEYOND_INT:
            raise SelectorError("integer overflow")

        return int(value)

    _need(value, int, str)
    if type(value) is int:
        return value

    # int() also accepts underscores, blanks and digits of other scripts, which strconv.ParseInt
    # does not.
    digits = value[1:] if value[:1] in {"+", "-"} else value
    is_number = digits.isascii() and digits.isdigit()
    if is_number and len(value) <= _LONGEST_NUMBER:
        number = int(value)
        if _LEAST_INT <= number <= _LARGEST_INT:
            return number

    raise SelectorError(f'"{value[:64]}" is not an integer')


def _to_float(charge: Charge, value: Value) -> float:
    _need(value, int, float, str)
    if type(value) is str and not _is_plain(value):
        raise SelectorError(f'"{value[:64]}" is not a number')

    try:
        return float(value)
    except ValueError as error:
        raise SelectorError(f'"{value[:64]}" is not a number') from error


def _is_plain(text: str) -> bool:
    """Whether a text has nothing that float() accepts and strconv.ParseFloat does not."""
    if len(text) > _LONGEST_NUMBER or "_" in text:
        return False

    return text.strip() == text


def _to_bool(charge: Charge, value: Value) -> bool:
    _need(value, bool, str)
    if type(value) is bool:
        return value
    # The spellings of strconv.ParseBool.
    if value in {"true", "TRUE", "True", "t", "T", "1"}:
        return True
    if value in {"false", "FALSE", "False", "f", "F", "0"}:
        return False

    raise SelectorError(f'"{value[:64]}" is neither true nor false')


def _to_text(charge: Charge, value: Value) -> str:
    _need(value, bool, int, str)
    if type(value) is bool:
        return "true" if value else "false"

    return str(value)


def _dyn(charge: Charge, value: Value) -> Value:
    return value


def _optional_of(charge: Charge, value: Value) -> Optional:
    return Optional(True, value)


def _optional_of_non_zero(charge: Charge, value: Value) -> Optional:
    may_be_zero = value is None or type(value) in _HAVE_ZEROS or isinstance(value, Mapping)
    if may_be_zero and not value:
        return NONE

    return Optional(True, value)


def _optional_none(charge: Charge) -> Optional:
    return NONE


def _has_value(charge: Charge, value: Value) -> bool:
    _need(value, Optional)
    return bool(value.present)


def _value(charge: Charge, value: Value) -> Value:
    _need(value, Optional)
    if not value.present:
        raise SelectorError("optional.none() dereference")

    return value.value


def _is_sorted(charge: Charge, items: Value) -> bool:
    _need(items, tuple)
    charge(1 + len(items))
    # Compared with `less` alone, so that equal neighbours count as sorted.
    pairs = pairwise(items)
    return not any(less(after, before, charge) for before, after in pairs)


def _contained(charge: Charge, items: Value, others: Value) -> bool:
    _need(items, tuple)
    _need(others, tuple)
    charge(1)

    return all(contains(items, other, charge) for other in others)


def _intersects(charge: Charge, items: Value, others: Value) -> bool:
    _need(items, tuple)
    _need(others, tuple)
    charge(1)

    return any(contains(items, other, charge) for other in others)


def _equivalent(charge: Charge, items: Value, others: Value) -> bool:
    if not _contained(charge, items, others):
        return False

    return _contained(charge, others, items)


def _is_less_than(charge: Charge, left: Value, right: Value) -> bool:
    order = _compare(charge, left, right)
    return order < 0


def _is_greater_than(charge: Charge, left: Value, right: Value) -> bool:
    order = _compare(charge, left, right)
    return order > 0


def _sign_of(amount: Quantity) -> int:
    if amount.nanos == 0:
        return 0

    return 1 if amount.nanos > 0 else -1


def _lowered(text: str) -> str:
    return text.translate(_LOWER)


def _uppered(text: str) -> str:
    return text.translate(_UPPER)


def _float_of(amount: Quantity) -> float:
    return amount.nanos / NANOS


def _sum_of(amount: Quantity, other: Value) -> Quantity:
    return amount.plus(other, 1)


def _difference_of(amount: Quantity, other: Value) -> Quantity:
    return amount.plus(other, -1)


_sign: Final = _of_quantity(_sign_of)
_as_float: Final = _of_quantity(_float_of)
_add: Final = _of_quantity(_sum_of)
_subtract: Final = _of_quantity(_difference_of)
_starts_with: Final = _text_method(str.startswith, str)
_ends_with: Final = _text_method(str.endswith, str)
_has_part: Final = _text_method(str.__contains__, str)
_lower: Final = _text_method(_lowered)
_upper: Final = _text_method(_uppered)

FUNCTIONS: Final[Mapping[str, tuple[Function, int, int]]] = {
    # name: function, least and most arguments (the target of a method is the first one)
    "size": (_size, 1, 1),
    "matches": (_matches, 2, 2),
    "int": (_to_int, 1, 1),
    "double": (_to_float, 1, 1),
    "bool": (_to_bool, 1, 1),
    "string": (_to_text, 1, 1),
    "dyn": (_dyn, 1, 1),
    "quantity": (_quantity, 1, 1),
    "isQuantity": (_succeeds(_quantity), 1, 1),
    "semver": (_semver, 1, 2),
    "isSemver": (_succeeds(_semver), 1, 2),
    "sign": (_sign, 1, 1),
    "optional.of": (_optional_of, 1, 1),
    "optional.ofNonZeroValue": (_optional_of_non_zero, 1, 1),
    "optional.none": (_optional_none, 0, 0),
    "sets.contains": (_contained, 2, 2),
    "sets.intersects": (_intersects, 2, 2),
    "sets.equivalent": (_equivalent, 2, 2),
}
METHODS: Final[Mapping[str, tuple[Function, int, int]]] = {
    "size": (_size, 1, 1),
    "matches": (_matches, 2, 2),
    "startsWith": (_starts_with, 2, 2),
    "endsWith": (_ends_with, 2, 2),
    "contains": (_has_part, 2, 2),
    "lowerAscii": (_lower, 1, 1),
    "upperAscii": (_upper, 1, 1),
    "trim": (_text_method(str.strip), 1, 1),
    "charAt": (_char_at, 2, 2),
    "indexOf": (_index_of, 2, 3),
    "lastIndexOf": (_last_index_of, 2, 3),
    "replace": (_replace, 3, 4),
    "split": (_split, 2, 3),
    "substring": (_substring, 2, 3),
    "join": (_join, 1, 2),
    "isSorted": (_is_sorted, 1, 1),
    "major": (_part(0), 1, 1),
    "minor": (_part(1), 1, 1),
    "patch": (_part(2), 1, 1),
    "compareTo": (_compare, 2, 2),
    "isLessThan": (_is_less_than, 2, 2),
    "isGreaterThan": (_is_greater_than, 2, 2),
    "isInteger": (_of_quantity(lambda value: value.whole), 1, 1),
    "asInteger": (_of_quantity(Quantity.as_int), 1, 1),
    "asApproximateFloat": (_as_float, 1, 1),
    "add": (_add, 2, 2),
    "sub": (_subtract, 2, 2),
    "sign": (_sign, 1, 1),
    "hasValue": (_has_value, 1, 1),
    "value": (_value, 1, 1),
}

"""Selectors as closures, compiled once and evaluated for each kind of device.

Invariant: the parts of a device that a selector reads are known when it is compiled; devices with
equal values of these parts get equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from kubernetes_cel.calls import FUNCTIONS, METHODS, found
from kubernetes_cel.faults import NO_OVERLOAD, SelectorError, TooManyStepsError, UnknownToSelectors
from kubernetes_cel.frames import MOST_STEPS, OPERATORS, Frame, Step, membership
from kubernetes_cel.operators import NONE, Optional, Value, find, get, keys, map_key
from kubernetes_cel.patterns import MOST_STATES, pattern
from kubernetes_cel.syntax import (
    Call,
    Chain,
    Conditional,
    Index,
    Let,
    ListOf,
    Literal,
    Macro,
    MapOf,
    Node,
    Select,
    Variable,
    parse,
)

_DEVICE: Final = "device"
_FIELDS: Final = frozenset({"driver", "attributes", "capacity", "allowMultipleAllocations"})

Path: TypeAlias = tuple[str, ...]
"""The part of a device that is read: ("attributes", domain, id), ("attributes", domain),
("driver",) …
"""


Scope: TypeAlias = Mapping[str, tuple[int, Path]]
"""Variables in scope: their places, and their paths if they are a part of the device."""


class Program:
    """A compiled selector. `reads` are the parts of a device that its answer depends on."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._variables = 0
        self._size = 0
        self._states = 0
        paths: set[Path] = set()
        self._found = paths
        self._step = self._compile(parse(source), {})
        shorter = ((path, path[:length]) for path in paths for length in range(1, len(path)))

        # A path is redundant if one of its prefixes is read as a whole.
        covered = {path for path, prefix in shorter if prefix in paths}
        self.reads: tuple[Path, ...] = tuple(sorted(paths - covered))

    def matches(self, device: Mapping[str, Value]) -> bool:
        """Whether the device matches. Raises SelectorError."""
        frame = Frame(device, self._variables)
        try:
            # One step per node of the tree; macros charge their bodies once more for each item.
            frame.charge(self._size)
            result = self._step(frame)
        # A class of its own, so that `||` and `all()` cannot absorb it as an error of one term.
        except TooManyStepsError as ended:
            raise SelectorError(f"takes more than {MOST_STEPS:,} steps") from ended

        if type(result) is not bool:
            raise SelectorError("the selector returns neither true nor false")

        return result

    def _compile(self, node: Node, scope: Scope) -> Step:
        self._size += 1
        path = self._path(node, scope)
        if path:
            # ("attributes", domain, id) is one value; deeper paths only occur inside of it.
            self._found.add(path[:3])

        match node:
            case Literal(value):
                return lambda frame: value
            case Variable(name):
                return self._variable(name, scope)
            case Select() | Index():
                return self._member(node, scope, read=bool(path))
            case Call():
                return self._call(node, scope)
            case Chain(sign, terms):
                return _chained(
                    [self._compile(term, scope) for term in terms],
                    decides=sign == "||",
                )
            case Conditional():
                return self._choice(node, scope)
            case ListOf(items):
                return _listed([(self._compile(item, scope), optional) for item, optional in items])
            case MapOf(entries):
                parts = [
                    (self._compile(key, scope), self._compile(value, scope), part)
                    for key, value, part in entries
                ]
                return _mapped(parts)
            case Macro():
                return self._macro(node, scope)
            case Let(variable, value, body):
                place = self._place()
                bound = self._operand(value, scope)

                # A variable that is a part of the device keeps its path, so that `reads` stays
                # exact through cel.bind.
                inner = self._compile(body, {**scope, variable: (place, self._path(value, scope))})
                return lambda frame: _with(frame, place, bound(frame), inner)

    def _place(self) -> int:
        self._variables += 1
        return self._variables - 1

    def _operand(self, node: Node, scope: Scope) -> Step:
        """Compile a part of the device that a longer path reads: the part is not read as
        a whole.
        """
        path = self._path(node, scope)
        if not path or len(path) >= 3:
            return self._compile(node, scope)

        known = path[:3] in self._found
        step = self._compile(node, scope)

        # Compiling added the shorter path; unless something else reads it as a whole, it is not
        # read.
        if not known:
            self._found.discard(path[:3])

        return step

    def _path(self, node: Node, scope: Scope) -> Path:
        """Which part of the device a node is, () for anything else."""
        match node:
            case Variable(name):
                return scope[name][1] if name in scope else (_DEVICE,) if name == _DEVICE else ()
            case Select(operand, field):
                path = self._path(operand, scope)
            case Index(operand, Literal(str(field))):
                path = self._path(operand, scope)
            case _:
                return ()

        return () if not path else (field,) if path == (_DEVICE,) else (*path, field)

    def _variable(self, name: str, scope: Scope) -> Step:
        if name in scope:
            place = scope[name][0]
            return lambda frame: frame.variables[place]

        if name != _DEVICE:
            raise UnknownToSelectors(f"the variable {name[:64]}")

        return lambda frame: frame.device

    def _member(self, node: Select | Index, scope: Scope, *, read: bool) -> Step:
        operand = self._operand(node.operand, scope) if read else self._compile(node.operand, scope)
        if isinstance(node, Select):
            field = node.field
            test = node.test

            # A newer API server may know more fields of `device`; to guess an answer would allocate
            # wrongly.
            if self._path(node.operand, scope) == (_DEVICE,) and field not in _FIELDS:
                raise UnknownToSelectors(f"device.{field[:64]}")

            key: Step = lambda frame: field  # noqa: E731
        else:
            key = self._compile(node.key, scope)
            test = False

        if test:
            return lambda frame: _tested(operand(frame), key(frame))
        if node.optional:
            return lambda frame: _optional_member(operand(frame), key(frame))

        return lambda frame: _plain_member(operand(frame), key(frame))

    def _choice(self, node: Conditional, scope: Scope) -> Step:
        condition, yes, no = (
            self._compile(branch, scope) for branch in (node.condition, node.yes, node.no)
        )

        def chosen(frame: Frame) -> Value:
            decided = condition(frame)
            if type(decided) is not bool:
                raise SelectorError(NO_OVERLOAD)

            return yes(frame) if decided else no(frame)

        return chosen

    def _call(self, node: Call, scope: Scope) -> Step:
        name = node.function
        if node.method and name in {"or", "orValue"} and len(node.arguments) == 2:
            return _alternative(
                *(self._compile(argument, scope) for argument in node.arguments), whole=name == "or"
            )

        if name == "in" and isinstance(node.arguments[1], ListOf):
            if not node.arguments[1].items:
                # CEL does not evaluate what an empty list cannot contain
                return lambda frame: False

            constants = all(isinstance(item, Literal) for item, _ in node.arguments[1].items)
            return membership(
                [self._compile(argument, scope) for argument in node.arguments],
                constants=constants,
            )

        if name in OPERATORS:
            return OPERATORS[name]([self._compile(argument, scope) for argument in node.arguments])

        arguments = [self._compile(argument, scope) for argument in node.arguments]
        function, least, most = (METHODS if node.method else FUNCTIONS).get(name, (None, 0, 0))
        if function is None:
            raise UnknownToSelectors(f"{name[:64]}()")
        # An overload that gangsched does not know, as the API server has checked the selector
        # already.
        if not least <= len(node.arguments) <= most:
            raise UnknownToSelectors(f"{name}() with {len(node.arguments)} arguments")
        if (
            name == "matches"
            and isinstance(node.arguments[1], Literal)
            and isinstance(node.arguments[1].value, str)
        ):
            return self._matching(arguments[0], node.arguments[1].value)

        if len(arguments) == 1:
            only = arguments[0]
            return lambda frame: function(frame.charge, only(frame))

        return lambda frame: function(frame.charge, *[argument(frame) for argument in arguments])

    def _matching(self, text: Step, source: str) -> Step:
        """Compile a constant pattern, so that what is unsupported in it is reported before any
        device is seen.
        """
        compiled = pattern(source)
        self._states += compiled.size
        # The sum of all patterns: many small ones cost as much as a large one.
        if self._states > MOST_STATES:
            raise UnknownToSelectors(f"patterns of more than {MOST_STATES} states")

        return lambda frame: found(frame.charge, text(frame), compiled)

    def _macro(self, node: Macro, scope: Scope) -> Step:
        source = self._compile(node.source, scope)
        place = self._place()
        before = self._size
        inner = {**scope, node.variable: (place, ())}
        body = self._compile(node.body, inner)
        condition = None if node.condition is None else self._compile(node.condition, inner)
        cost = self._size - before

        if node.name in {"optMap", "optFlatMap"}:
            return _optional_map(source, place, body, flat=node.name == "optFlatMap")

        def each(frame: Frame) -> Value:
            items = source(frame)
            if isinstance(items, Mapping):
                items = tuple(keys(items))

            if not isinstance(items, tuple):
                raise SelectorError(NO_OVERLOAD)

            return _ITERATIONS[node.name](frame, items, place, body, condition, cost)

        return each


def _with(frame: Frame, place: int, value: Value, inner: Step) -> Value:
    frame.variables[place] = value
    return inner(frame)


def _tested(operand: Value, key: Value) -> bool:
    if isinstance(operand, Optional):
        return operand.present and _tested(operand.value, key)

    return find(operand, key).present


def _plain_member(operand: Value, key: Value) -> Value:
    if isinstance(operand, Optional):  # what follows an optional selection is optional
        return find(operand.value, key) if operand.present else NONE

    return get(operand, key)


def _optional_member(operand: Value, key: Value) -> Optional:
    if isinstance(operand, Optional):
        return find(operand.value, key) if operand.present else NONE

    return find(operand, key)


def _chained(terms: list[Step], *, decides: bool) -> Step:
    """`&&` or `||`: a term that decides wins over errors before and after it."""

    return lambda frame: _decided((partial(term, frame) for term in terms), decides=decides)


def _decided(values: Iterable[Callable[[], Value]], *, decides: bool) -> bool:
    """Evaluate values until one decides; the first error counts only if none does."""
    error: SelectorError | None = None
    for value_of in values:
        try:
            value = value_of()
            if value is decides:
                return bool(decides)
            if type(value) is not bool:
                raise SelectorError(NO_OVERLOAD)
        except SelectorError as raised:
            error = error or raised

    if error is not None:
        raise error

    return not decides


def _listed(items: list[tuple[Step, bool]]) -> Step:
    def made(frame: Frame) -> tuple[Value, ...]:
        evaluated = ((item(frame), optional) for item, optional in items)
        return tuple(
            value.value if optional else value
            for value, optional in evaluated
            if not optional or _there(value)
        )

    return made


def _there(value: Value) -> bool:
    if not isinstance(value, Optional):
        raise SelectorError(NO_OVERLOAD)

    return value.present


def _mapped(entries: list[tuple[Step, Step, bool]]) -> Step:
    def made(frame: Frame) -> Mapping[Value, Value]:
        entries_made: dict[Value, Value] = {}
        for key_of, value_of, optional in entries:
            key = map_key(key_of(frame))
            value = value_of(frame)
            if optional and not _there(value):
                continue
            if key in entries_made:
                raise SelectorError("Failed with repeated key")

            entries_made[key] = value.value if optional else value

        return entries_made

    return made


def _alternative(target: Step, other: Step, *, whole: bool) -> Step:
    """`or` and `orValue`, which evaluate their argument only if it is needed."""

    def chosen(frame: Frame) -> Value:
        value = target(frame)
        if not isinstance(value, Optional):
            raise SelectorError(NO_OVERLOAD)

        return (value if whole else value.value) if value.present else other(frame)

    return chosen


def _optional_map(source: Step, place: int, body: Step, *, flat: bool) -> Step:
    def mapped(frame: Frame) -> Value:
        value = source(frame)
        if not isinstance(value, Optional):
            raise SelectorError(NO_OVERLOAD)
        if not value.present:
            return NONE

        result = _with(frame, place, value.value, body)
        return result if flat else Optional(True, result)

    return mapped


def _over(
    items: Iterable[Value],
    frame: Frame,
    place: int,
    step: Step,
    cost: int,
) -> Iterator[Callable[[], Value]]:
    """The evaluations of a step for each item, each charged before it is made."""
    for item in items:
        frame.charge(cost)
        yield partial(_with, frame, place, item, step)


def _chosen(
    items: Iterable[Value],
    frame: Frame,
    place: int,
    condition: Step | None,
    cost: int,
) -> Iterator[Value]:
    """The items for which the condition is true; all without one."""
    for item in items:
        frame.charge(cost)
        value = condition is None or _with(frame, place, item, condition)
        if type(value) is not bool:
            raise SelectorError(NO_OVERLOAD)

        if value:
            yield item


def _filtered(
    items: Iterable[Value],
    frame: Frame,
    place: int,
    condition: Step,
    cost: int,
) -> tuple[Value, ...]:
    chosen = _chosen(items, frame, place, condition, cost)
    return tuple(chosen)


_ITERATIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "all": lambda frame, items, place, body, _, cost: _decided(
        _over(items, frame, place, body, cost),
        decides=False,
    ),
    "exists": lambda frame, items, place, body, _, cost: _decided(
        _over(items, frame, place, body, cost),
        decides=True,
    ),
    "exists_one": lambda frame, items, place, body, _, cost: (
        len(_filtered(items, frame, place, body, cost)) == 1
    ),
    "filter": lambda frame, items, place, body, _, cost: _filtered(
        items,
        frame,
        place,
        body,
        cost,
    ),
    "map": lambda frame, items, place, body, condition, cost: tuple(
        _with(frame, place, item, body) for item in _chosen(items, frame, place, condition, cost)
    ),
}

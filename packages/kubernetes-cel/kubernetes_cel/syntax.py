"""The syntax tree of a selector.

Invariant: macros have their own kinds of nodes. A chain of `&&` or of `||` is one node, so that a
long chain does not make the tree deep. No tree is deeper than `DEEPEST`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from kubernetes_cel.faults import UnknownToSelectors
from kubernetes_cel.tokens import Token, tokens

# Python's recursion limit is 1,000 frames, of which each level takes several.
DEEPEST: Final = 50
"""Levels of nesting: evaluation recurses as deep."""
_INT_MAX: Final = 2**63 - 1
# `optional.of(x)` is a function; `device.of(x)` would be a method of a value.
_QUALIFIED: Final = frozenset(
    {"cel", "optional", "sets", "strings", "ip", "cidr", "math", "base64", "regex", "lists"}
)
"""Names before a dot that belong to a function's name."""
_KEYWORDS: Final = {"true": True, "false": False, "null": None}
_RELATIONS: Final = frozenset({"<", "<=", ">", ">=", "==", "!=", "in"})
MACROS: Final = {
    "all": 2,
    "exists": 2,
    "exists_one": 2,
    "filter": 2,
    "map": 2,
    "optMap": 2,
    "optFlatMap": 2,
}
"""Macros called on a value, with their number of arguments; `map` may have a third one."""


class Literal(msgspec.Struct, frozen=True):
    """A constant."""

    value: bool | int | float | str | None


class Variable(msgspec.Struct, frozen=True):
    """`device`, or a variable of a macro."""

    name: str


class Select(msgspec.Struct, frozen=True):
    """`operand.field`. `optional` is set for `operand.?field`, and `test` inside `has()`."""

    operand: Node
    field: str
    optional: bool = False
    test: bool = False


class Index(msgspec.Struct, frozen=True):
    """`operand[key]`. `optional` is set for `operand[?key]`."""

    operand: Node
    key: Node
    optional: bool = False


class Call(msgspec.Struct, frozen=True):
    """A function or operator; a method has its target as the first argument."""

    function: str
    arguments: tuple[Node, ...]
    method: bool = False


class Chain(msgspec.Struct, frozen=True):
    """All terms joined by `&&` or by `||`."""

    sign: str
    terms: tuple[Node, ...]


class Conditional(msgspec.Struct, frozen=True):
    """`condition ? yes : no`."""

    condition: Node
    yes: Node
    no: Node


class ListOf(msgspec.Struct, frozen=True):
    """A list. An item that is marked optional is left out if it has no value."""

    items: tuple[tuple[Node, bool], ...]


class MapOf(msgspec.Struct, frozen=True):
    """A map. Each entry has a key, a value, and a mark; a marked entry is left out if it has no
    value.
    """

    entries: tuple[tuple[Node, Node, bool], ...]


class Macro(msgspec.Struct, frozen=True):
    """A macro over `source` with one variable. Only a `map` with three arguments has
    a `condition`.
    """

    name: str
    source: Node
    variable: str
    body: Node
    condition: Node | None = None


class Let(msgspec.Struct, frozen=True):
    """`cel.bind(variable, value, body)`."""

    variable: str
    value: Node
    body: Node


Node: TypeAlias = (
    Literal | Variable | Select | Index | Call | Chain | Conditional | ListOf | MapOf | Macro | Let
)


def parse(source: str) -> Node:
    """Parse an expression into a tree. Raises UnknownToSelectors."""
    parser = _Parser(list(tokens(source)))
    tree = parser.expression()
    parser.expect("end")

    return tree


class _Parser:
    """Recursive descent over CEL's grammar.

    `_depth` is the number of open levels, which bounds the descent; `_height` is the height of the
    tree parsed last.
    """

    def __init__(self, stream: list[Token]) -> None:
        self._stream = stream
        self._at = 0
        self._depth = 0
        self._height = 0

    @property
    def _next(self) -> Token:
        return self._stream[self._at]

    def _take(self) -> Token:
        token = self._stream[self._at]
        self._at += 1
        return token

    def _has(self, *signs: str) -> bool:
        return self._next.kind in {"sign", "name"} and self._next.text in signs

    def _accept(self, *signs: str) -> bool:
        is_there = self._has(*signs)
        self._at += is_there
        return is_there

    def expect(self, wanted: str) -> None:
        """Read this sign, or the end of the text. Raises UnknownToSelectors for anything else."""
        if wanted not in {self._next.kind, self._next.text} or self._next.kind == "literal":
            raise UnknownToSelectors(f"{self._next.text[:32]} where {wanted} is expected")

        self._at += 1

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise UnknownToSelectors(f"more than {DEEPEST} levels of nesting")

    def _above(self, *heights: int) -> None:
        """Note the height of a tree with the last one and others of these heights under it."""
        self._height = 1 + max(self._height, *heights)
        if self._height > DEEPEST:
            raise UnknownToSelectors(f"more than {DEEPEST} levels of nesting")

    def expression(self) -> Node:
        """Parse one expression, including `?:`, which has the lowest precedence."""
        self._deeper()
        tree = self._chain("||")

        if self._accept("?"):
            heights = [self._height]
            yes = self._chain("||")
            heights.append(self._height)
            self.expect(":")
            tree = Conditional(tree, yes, self.expression())
            self._above(*heights)

        self._depth -= 1
        return tree

    def _chain(self, sign: str) -> Node:
        terms: list[Node] = []
        heights: list[int] = []

        while not terms or self._accept(sign):
            terms.append(self._chain("&&") if sign == "||" else self._binary(0))
            heights.append(self._height)

        if len(terms) == 1:
            return terms[0]

        # A chain is one level above its highest term, however many terms it has.
        self._above(*heights)
        return Chain(sign, tuple(terms))

    def _binary(self, level: int) -> Node:
        """Relations, sums, then products, each from left to right."""
        if level == 3:
            return self._unary()

        signs = (_RELATIONS, frozenset("+-"), frozenset("*/%"))[level]
        tree = self._binary(level + 1)

        while self._has(*signs):
            sign = self._take().text
            height = self._height
            tree = Call(sign, (tree, self._binary(level + 1)))
            self._above(height)

        return tree

    def _unary(self) -> Node:
        if not self._has("!", "-"):
            return self._member()

        self._deeper()
        sign = self._take().text
        # -9223372036854775808 is a valid literal, although its positive part is not.
        if sign == "-" and type(self._next.value) in {int, float}:
            self._stream[self._at] = Token("literal", self._next.text, -(self._next.value or 0))  # type: ignore[operator]
            tree = self._member()
        else:
            tree = Call(sign, (self._unary(),))
            self._above(0)

        self._depth -= 1
        return tree

    def _member(self) -> Node:
        tree = self._primary()
        while self._has(".", "["):
            height = self._height
            if self._accept("["):
                optional = self._accept("?")
                tree = Index(tree, self.expression(), optional)
                self._above(height)
                self.expect("]")
                continue

            self._take()
            optional = self._accept("?")
            field = self._name()

            if not optional and self._accept("("):
                tree = self._method(tree, field, self._arguments(")"))
            else:
                tree = Select(tree, field, optional)

            self._above(height)

        return tree

    def _name(self) -> str:
        if self._next.kind != "name":
            raise UnknownToSelectors(f"{self._next.text[:32]} where a name is expected")

        return self._take().text

    def _arguments(self, end: str) -> tuple[Node, ...]:
        arguments: list[Node] = []
        height = 0

        while not self._has(end):
            arguments.append(self.expression())
            height = max(height, self._height)

            if not self._accept(","):
                break

        self.expect(end)
        self._height = height
        return tuple(arguments)

    def _method(self, target: Node, name: str, arguments: tuple[Node, ...]) -> Node:
        if isinstance(target, Variable) and target.name in _QUALIFIED:
            name = f"{target.name}.{name}"
            if name == "cel.bind" and len(arguments) == 3 and isinstance(arguments[0], Variable):
                return Let(arguments[0].name, arguments[1], arguments[2])

            return Call(name, arguments)

        if name not in MACROS or not arguments or not isinstance(arguments[0], Variable):
            return Call(name, (target, *arguments), method=True)
        if name == "map" and len(arguments) == 3:
            return Macro(name, target, arguments[0].name, arguments[2], arguments[1])
        if len(arguments) != MACROS[name]:
            raise UnknownToSelectors(f"{name}() with {len(arguments)} arguments")

        return Macro(name, target, arguments[0].name, arguments[1])

    def _primary(self) -> Node:
        token = self._take()
        self._height = 1

        if token.kind == "literal":
            # 2^63 is a token only for the minus in front of it.
            if type(token.value) is int and token.value > _INT_MAX:
                raise UnknownToSelectors(f"the number {token.text[:32]}")

            return Literal(token.value)

        # `.name` is a name in the root scope, which is the only one here.
        if token.text == "." and self._next.kind == "name":
            token = self._take()

        if token.kind == "name":
            return self._named(token.text)

        match token.text:
            case "(":
                tree = self.expression()
                self.expect(")")
                return tree
            case "[":
                return self._list()
            case "{":
                return self._map()

        raise UnknownToSelectors(f"{token.text[:32]} where a value is expected")

    def _named(self, name: str) -> Node:
        if name in _KEYWORDS:
            return Literal(_KEYWORDS[name])
        if self._has("{"):
            raise UnknownToSelectors(f"an object of type {name[:32]}")
        if not self._accept("("):
            return Variable(name)

        arguments = self._arguments(")")
        self._above(0)

        if name != "has":
            return Call(name, arguments)

        field = arguments[0] if len(arguments) == 1 else None
        if not isinstance(field, Select) or field.optional:
            raise UnknownToSelectors("has() of something that is not a field")

        return Select(field.operand, field.field, test=True)

    def _list(self) -> Node:
        items: list[tuple[Node, bool]] = []
        height = 0

        while not self._has("]"):
            optional = self._accept("?")
            items.append((self.expression(), optional))
            height = max(height, self._height)

            if not self._accept(","):
                break

        self.expect("]")
        self._above(height)
        return ListOf(tuple(items))

    def _map(self) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        height = 0

        while not self._has("}"):
            optional = self._accept("?")
            key = self.expression()
            height = max(height, self._height)
            self.expect(":")
            entries.append((key, self.expression(), optional))
            height = max(height, self._height)

            if not self._accept(","):
                break

        self.expect("}")
        self._above(height)
        return MapOf(tuple(entries))

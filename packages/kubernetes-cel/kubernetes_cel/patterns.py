"""Regular expressions in linear time: a pattern is a graph of states, and all reachable states are
followed at once.

Invariant: no backtracking, so no pattern takes more than (characters) × (states) steps. The grammar
is RE2's without flags, Unicode properties and named classes; these raise UnknownToSelectors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from kubernetes_cel.faults import UnknownToSelectors

# A step follows all states at once, so this also bounds the cost of each character.
MOST_STATES: Final = 3000
"""States of a pattern and the ways between them, repetitions written out."""
MOST_REPEATED: Final = 1000
"""RE2's bound of a counted repetition."""
_DEEPEST: Final = 50
_MOST_DIGITS: Final = 9

Build: TypeAlias = Callable[[int], int]
"""Makes the states of a part of a pattern, given the state after it; returns the first of them."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]

_LAST: Final = 0x10FFFF
_NEWLINE: Final = 10
_DIGITS: Final[Ranges] = ((48, 57),)
_WORDS: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
_CLASSES: Final = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_ESCAPED: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_BOUNDS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BEGIN = "begin"
_END = "end"
_WORD_EDGE = "edge"
_NO_WORD_EDGE = "no edge"


def _edges(ranges: Ranges) -> tuple[int, ...]:
    """Where characters begin and cease to be in the ranges, ascending: a character is in them after
    an odd number.
    """
    edges = []
    # Twice inverted: sorted, and ranges that touch are one.
    for low, high in _inverse(_inverse(ranges)):
        edges += [low, high + 1]

    return tuple(edges)


def _inverse(ranges: Ranges) -> Ranges:
    ranges_between = []
    at = 0

    for low, high in sorted(ranges):
        if low > at:
            ranges_between.append((at, low - 1))

        at = max(at, high + 1)

    if at <= _LAST:
        ranges_between.append((at, _LAST))

    return tuple(ranges_between)


def _single(code: int) -> Ranges:
    return ((code, code),)


def _between(low: Ranges, high: Ranges) -> Ranges:
    """The characters from one to another, each given as ranges."""
    if len(low) != 1 or len(high) != 1:
        raise UnknownToSelectors("an empty range in a pattern")

    first, last_of_low = low[0]
    _, last = high[0]
    if first != last_of_low or first > last:
        raise UnknownToSelectors("an empty range in a pattern")

    return ((first, last),)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


class Pattern:
    """A compiled pattern.

    `size` counts the states, the transitions between them, and the parts of the pattern, including
    parts without a state. `takes[state]` has the bounds of the character ranges that lead to
    `then[state]`. A state without ranges goes to `skips[state]` without reading a character, if its
    `guard` holds.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0
        self.size = 0
        self.takes: list[tuple[int, ...] | None] = []
        self.then: list[int] = []
        self.skips: list[tuple[int, ...]] = []
        self.guard: list[str] = []

        # Built from the end: each part gets the state that follows it.
        self.accept = self._state()
        self.start = self._alternatives()(self.accept)
        if self._at < len(source):
            raise UnknownToSelectors(f"an unmatched {source[self._at]} in a pattern")

    def _state(
        self,
        *,
        takes: tuple[int, ...] | None = None,
        then: int = 0,
        skips: tuple[int, ...] = (),
        guard: str = "",
    ) -> int:
        self._grow(1 + len(skips))
        self.takes.append(takes)
        self.then.append(then)
        self.skips.append(skips)
        self.guard.append(guard)

        return len(self.takes) - 1

    def _grow(self, size: int) -> None:
        self.size += size
        if self.size > MOST_STATES:
            raise UnknownToSelectors(f"a pattern of more than {MOST_STATES} states")

    # A part is a function from the state after it to the state before it, so that a repetition can
    # be written out.

    def _alternatives(self) -> Build:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnknownToSelectors(f"groups nested more than {_DEEPEST} deep in a pattern")

        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())

        self._depth -= 1
        if len(parts) == 1:
            return parts[0]

        return lambda after: self._state(skips=tuple(part(after) for part in parts))

    def _sequence(self) -> Build:
        parts: list[Build] = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))

        def build(after: int) -> int:
            self._grow(1)  # `((a{0}){1000}){1000}` has no state, and a million parts
            for part in reversed(parts):
                after = part(after)

            return after

        return build

    def _repeated(self, part: Build) -> Build:
        repeated = False
        while (bounds := self._bounds()) is not None:
            if repeated:
                raise UnknownToSelectors("a repetition of a repetition in a pattern")

            repeated = True
            # Lazy repetition changes which match is found, not whether there is one.
            self._accept("?")  # the shortest match is a match too
            part = self._times(part, *bounds)

        return part

    def _ahead(self, offset: int = 0) -> str:
        """The next character, or the one so many behind it; "" at the end."""
        at = self._at + offset
        return self._source[at : at + 1]

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in _BOUNDS.items():
            if self._accept(sign):
                return bounds

        end = self._source.find("}", self._at)
        if self._ahead() != "{" or end < 0:
            return None

        low, comma, high = self._source[self._at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None  # RE2 reads it as text
        # Before int(): converting thousands of digits is quadratic.
        if max(len(low), len(high)) > _MOST_DIGITS:
            raise UnknownToSelectors("a repetition of more than 1000 times in a pattern")

        least = int(low)
        most: int | None = least
        if comma:
            most = int(high) if high else None

        # Of an open repetition the minimum is the largest number.
        largest = least if most is None else most
        if max(least, largest) > MOST_REPEATED or largest < least:
            raise UnknownToSelectors("a repetition of more than 1000 times in a pattern")

        self._at = end + 1
        return least, most

    def _times(
        self,
        part: Build,
        least: int,
        most: int | None,
    ) -> Build:
        def build(after: int) -> int:
            if most is None:
                # The state must exist before its part, which leads back to it.
                loop = self._state()
                self.skips[loop] = (part(loop), after)
                after = loop
            else:
                for _ in range(most - least):
                    after = self._state(skips=(part(after), after))

            for _ in range(least):
                after = part(after)

            return after

        return build

    def _accept(self, sign: str) -> bool:
        is_there = self._source.startswith(sign, self._at)
        self._at += len(sign) if is_there else 0
        return is_there

    def _atom(self) -> Build:
        character = self._source[self._at]
        self._at += 1

        match character:
            case "(":
                return self._group()
            case "[":
                return self._taking(self._set())
            case ".":
                return self._taking(_inverse(_single(_NEWLINE)))
            case "^":
                return self._guarded(_BEGIN)
            case "$":
                return self._guarded(_END)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise UnknownToSelectors(f"{character} without something to repeat in a pattern")

        return self._taking(_single(ord(character)))

    def _taking(self, ranges: Ranges) -> Build:
        edges = _edges(ranges)
        # A new state at each use: a repetition calls this once per copy.
        return lambda after: self._state(takes=edges, then=after)

    def _guarded(self, guard: str) -> Build:
        return lambda after: self._state(skips=(after,), guard=guard)

    def _group(self) -> Build:
        if self._accept("?") and not self._accept(":"):
            name = self._source[self._at :].removeprefix("P")
            # Names of groups are irrelevant for matching; flags would change it.
            if not name.startswith("<") or ">" not in name:
                raise UnknownToSelectors("flags in a pattern")

            self._at = self._source.index(">", self._at) + 1

        part = self._alternatives()
        if not self._accept(")"):
            raise UnknownToSelectors("an unclosed group in a pattern")

        return part

    def _escape(self) -> Build:
        escaped = self._ahead()
        guard = {"A": _BEGIN, "z": _END, "b": _WORD_EDGE, "B": _NO_WORD_EDGE}.get(escaped)
        if guard is not None:
            self._at += 1
            return self._guarded(guard)

        return self._taking(self._escaped())

    def _escaped(self) -> Ranges:
        """The characters of what follows a backslash."""
        escaped = self._ahead()
        self._at += 1

        if escaped.lower() in _CLASSES:
            ranges = _CLASSES[escaped.lower()]
            return _inverse(ranges) if escaped.isupper() else ranges

        if escaped == "x":
            digits = self._source[self._at : self._at + 2]
            if len(digits) == 2 and _HEX.issuperset(digits):
                self._at += 2
                return _single(int(digits, 16))

        if escaped in _ESCAPED:
            return _single(_ESCAPED[escaped])
        if escaped and escaped in _PUNCTUATION:
            return _single(ord(escaped))

        raise UnknownToSelectors(f"\\{escaped} in a pattern")

    def _set(self) -> Ranges:
        inverse = self._accept("^")
        first = True
        ranges: list[tuple[int, int]] = []

        while first or not self._accept("]"):
            first = False
            if self._source.startswith("[:", self._at):
                raise UnknownToSelectors("a named class in a pattern")

            member = self._member()
            if self._ahead() == "-" and self._ahead(1) not in {"]", ""}:
                self._at += 1
                member = _between(member, self._member())

            ranges += member

        return _inverse(tuple(ranges)) if inverse else tuple(ranges)

    def _member(self) -> Ranges:
        character = self._ahead()
        if not character:
            raise UnknownToSelectors("an unclosed class in a pattern")

        self._at += 1
        if character == "\\":
            return self._escaped()

        return _single(ord(character))

    def found(self, text: str, charge: Callable[[int], None]) -> bool:
        """Whether the pattern matches any part of the text. `charge` receives the steps for each
        character.
        """
        states: set[int] = set()
        for at in range(len(text) + 1):
            # The start is added at each character: an unanchored match may begin anywhere.
            states = self._passed({*states, self.start}, text, at)
            charge(1 + len(states))

            if self.accept in states:
                return True

            if at < len(text):
                code = ord(text[at])
                # An odd number of edges at or below the character means that it is inside a range.
                states = {
                    self.then[state]
                    for state in states
                    if bisect_right(self.takes[state] or (), code) % 2
                }

        return False

    def _passed(self, states: set[int], text: str, at: int) -> set[int]:
        """The states, and all that are reached without a character."""
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if self.takes[state] is None and self._holds(self.guard[state], text, at):
                fresh = [
                    state_after for state_after in self.skips[state] if state_after not in states
                ]
                states.update(fresh)
                waiting += fresh

        return states

    @staticmethod
    def _holds(guard: str, text: str, at: int) -> bool:
        if not guard:
            return True
        if guard in {_BEGIN, _END}:
            return at == (0 if guard == _BEGIN else len(text))

        before, after = (
            # RE2's \b knows ASCII words only; at the ends of the text the slice is "", which is no
            # word.
            character.isascii() and (character.isalnum() or character == "_")
            for character in (text[at - 1 : at], text[at : at + 1])
        )
        return (before != after) == (guard == _WORD_EDGE)


@lru_cache(maxsize=256)
def pattern(source: str) -> Pattern:
    """Compile a pattern. Raises UnknownToSelectors."""
    return Pattern(source)

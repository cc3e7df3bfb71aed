"""The parts of what is told of a refusal, and how they become one text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Final

import msgspec
from msgspec import structs

from gangsched.sentences.words import EQUAL

NEVER: Final = " can never start: "
OF_EXISTING_NODES: Final = " does not fit the existing nodes: "


class Sentences(msgspec.Struct, frozen=True, dict=True):
    """What users read of a refusal: the headline is `first`, and `best`, the best there is now,
    behind the `joint`.

    `first` and the sentences `more` change only with the reason, the cause or the advice; `best`
    and the sentences `details` change more often. `lack` says in place of `best`, and holds as long
    as `first` does, that what is needed is not there.

    What each gang asks for several times is made once.
    """

    first: str
    best: str = ""
    more: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    joint: str = ": "
    lack: str = ""

    @cached_property
    def stable(self) -> str:
        """The part that seldom changes."""
        if not self.first:
            return ""

        # Without a `best` the first part says all itself.
        first = f"{self.first}{self.joint}{self.lack}" if self.best and self.lack else self.first
        return ". ".join((first, *map(capital, self.more)))

    @property
    def now(self) -> str:
        """The part that changes more often; "" without one."""
        return _text((self.best, *self.details))

    @property
    def headline(self) -> str:
        """The first sentence: what is needed, the best there is, what is in the way."""
        parts = [part for part in (self.first, self.best) if part]
        if len(parts) < 2:
            return parts[0] if parts else next(iter(self.details), "")

        return self.joint.join(parts)

    @cached_property
    def text(self) -> str:
        """All sentences, the headline first."""
        if not self.first and not self.best:
            return self.now

        return _text((self.headline, *self.more, *self.details))

    def of_existing_nodes(self) -> Sentences:
        """The same while an autoscaler is asked for nodes: what never fits is said of those that
        exist.
        """
        first = self.first.replace(NEVER, OF_EXISTING_NODES)
        return self if first == self.first else structs.replace(self, first=first)

    def with_details(self, sentences: Iterable[str]) -> Sentences:
        """The same with more sentences."""
        more = [sentence.removesuffix(".") for sentence in sentences]
        return structs.replace(self, details=(*self.details, *more))


def _text(sentences: Iterable[str]) -> str:
    """Several sentences end with full stops, a single one only if it does so itself."""
    present = [sentence for sentence in sentences if sentence]
    if len(present) < 2:
        return "".join(present)

    first, *others = present
    return f"{'. '.join((_without_stop(first), *map(_following, others)))}."


@lru_cache(maxsize=EQUAL)
def _following(sentence: str) -> str:
    """The sentence behind another one."""
    return capital(_without_stop(sentence))


def _without_stop(sentence: str) -> str:
    return sentence.rstrip().removesuffix(".")


def capital(sentence: str) -> str:
    """The sentence with a capital letter, unless it begins with a name such as `ml/train`."""
    first_word = sentence.partition(" ")[0]
    if "/" in first_word:
        return sentence

    return sentence[:1].upper() + sentence[1:]

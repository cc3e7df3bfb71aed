"""The sentences of one refusal, from its facts.

Invariant: what stays the same while a gang waits is kept apart from counts that change, which are
written once per gang (semantics E1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gangsched.model.gang import Refusal
from gangsched.model.verdict_facts import Worded
from gangsched.sentences.placing import worded
from gangsched.sentences.preempting import obstacle

REMEMBERED = 4_096
"""Refusals whose sentences are kept: thousands of members of a gang share one."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """What users read of a refusal. `stable` changes only with the reason, the cause or the advice;
    `now` has what changes more often.
    """

    stable: str
    now: str = ""

    @property
    def text(self) -> str:
        """`stable` and `now`, joined."""
        if self.stable and self.now:
            return f"{self.stable}: {self.now}"

        return self.stable or self.now


@lru_cache(maxsize=REMEMBERED)
def say(refusal: Refusal) -> Sentences:
    """The sentences of a refusal."""
    stable, now = worded(refusal, say_cause)

    for detail in refusal.details:
        now = _longer(now, detail.text if isinstance(detail, Worded) else obstacle(detail))

    return Sentences(stable, now)


def say_cause(refusal: Refusal) -> tuple[str, str]:
    """Both parts of the sentences of a refusal that is the cause of another one."""
    said = say(refusal)
    return said.stable, said.now


def _longer(now: str, said: str) -> str:
    """`now` with one more sentence."""
    if not now:
        return said
    if said.endswith("."):
        return f"{now.rstrip()} {said}"
    if now.endswith("."):
        return f"{now} {said[:1].upper()}{said[1:]}."

    return f"{now}; {said}"

"""The sentences of one refusal, from its facts.

Invariant: what stays the same while a gang waits is kept apart from counts that change, which are
written once per gang (semantics E1).
"""

from __future__ import annotations

from functools import lru_cache

from gangsched.model.gang import Refusal
from gangsched.model.preemption import NotHelpful
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Detail, Worded
from gangsched.model.wait_facts import WaitFact
from gangsched.sentences.capacity import capacity
from gangsched.sentences.obstacles import obstacle
from gangsched.sentences.placing import worded
from gangsched.sentences.waits import worded_wait
from gangsched.sentences.wording import Sentences

REMEMBERED = 4_096
"""Refusals whose sentences are kept: thousands of members of a gang share one."""


@lru_cache(maxsize=REMEMBERED)
def say(refusal: Refusal) -> Sentences:
    """The sentences of a refusal."""
    fact = refusal.fact
    sentences = (
        Sentences(*worded_wait(fact)) if isinstance(fact, WaitFact) else worded(refusal, say)
    )

    if refusal.reason is Reason.PROVISIONING:
        sentences = sentences.of_existing_nodes()

    if refusal.details:
        sentences = sentences.with_details(map(_detail, refusal.details))

    return sentences


def _detail(detail: Detail) -> str:
    if isinstance(detail, Worded):
        return detail.text
    if isinstance(detail, NotHelpful):
        return obstacle(detail)

    return capacity(detail)

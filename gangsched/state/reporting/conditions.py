"""The condition of each waiting pod (semantics E1).

Invariant: pure. Changing counts are written once per gang: on its PodGroup, else on its oldest
waiting pod; the conditions of its other pods have the part that does not change, and name that
object. A pod that may start alone has its complete message in its own condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from gangsched.api.dialects import DIALECTS
from gangsched.model.gang import Gang, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.text import cut
from gangsched.model.verdict_facts import HomeFull, NoNode, Worded
from gangsched.sentences import say
from gangsched.state.gangs import GangRecord
from gangsched.state.members import Member

FACTS_S = 5.0
"""How old facts may get in the one place that has them."""
REPEAT_S = 30.0
"""How often another pod's condition is written while only facts in it move."""


NO_NODE = "no node was found for this pod"


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition to write. `text` is the whole message, `message` the part of it that does not
    change.

    If only the rest changes, it is written again after `repeat_s` at the earliest. A pod that
    makes `progress` has a node, so that its condition comes without an Event.
    """

    reason: Reason
    message: str
    text: str
    repeat_s: float = REPEAT_S
    progress: bool = False


def is_stored(pod: Pod, told: PodCondition) -> bool:
    """Whether the pod has a condition that was told."""
    stored = pod.condition
    if stored is None or stored.status != "False":
        return False

    return (stored.reason, stored.message) == (told.reason.value, cut(told.text))


def progress(members: Iterable[tuple[Member, Refusal]]) -> Iterator[tuple[Pod, PodCondition]]:
    """Yield the condition of each of these members, which have a node and what they wait for."""
    for member, refusal in members:
        sentences = say(refusal)
        text = cut(sentences.text)
        yield member.pod, PodCondition(refusal.reason, sentences.stable, text, progress=True)


def pod_conditions(
    record: GangRecord,
    gang: Gang,
    verdict: Verdict,
    faults: Sequence[str],
    *,
    has_conditions: bool = True,
) -> Iterator[tuple[Pod, PodCondition]]:
    """Yield the condition of every waiting pod. A pod without a reason of its own gets the `faults`
    of its group.

    `has_conditions`: whether its PodGroup, if it has one, stores conditions. If not, the oldest
    waiting pod has the counts.
    """
    waiting = [
        *gang.pending,
        *gang.retry,
        *gang.later,
        *(placement.pod for placement in (*gang.kept, *gang.held)),
    ]
    notes = dict(verdict.notes)

    of_gang: Refusal | None = verdict.of_gang(gang.id)
    if of_gang is not None and of_gang.reason is Reason.SCHEDULED:
        # The verdict sent this member: what keeps it now is the failed bind of another, which has
        # the details.
        text = "waiting for the retry of a bind in the same group"
        of_gang = Refusal(Reason.BACK_OFF, Worded(text, faults[0])) if faults else None

    on_pod_group = record.pod_group is not None and has_conditions
    place = None if on_pod_group else min(waiting, key=_age, default=None)
    # Members that run freely have a message each: what is free in the cluster concerns each of them
    # alone.
    facts = say(of_gang).now if of_gang is not None and not gang.free_running else ""
    see = f"; see {_place_name(record, place)}" if facts else ""
    of_members = _of_member(of_gang, see) if of_gang is not None else None

    for pod in waiting:
        fault = record.members[pod.uid].fault
        refusal = (
            Refusal(Reason.BACK_OFF, Worded(now=fault)) if fault else notes.get(pod.uid, of_gang)
        )
        if refusal is None:
            continue

        # The whole text, since no other place has it.
        if fault or gang.free_running:
            sentences = say(refusal)
            text = sentences.text if isinstance(refusal.fact, HomeFull) else _alone(refusal)
            yield pod, PodCondition(shown_reason(refusal), sentences.stable, cut(text))
        elif pod is place and facts:
            sentences = say(refusal)
            message = sentences.stable or NO_NODE
            yield (
                pod,
                PodCondition(refusal.reason, message, cut(sentences.text or message), FACTS_S),
            )
        elif refusal is of_gang and of_members is not None:
            yield pod, of_members  # one object for all of them
        else:
            yield pod, _of_member(refusal, see)


def shown_reason(refusal: Refusal) -> Reason:
    """The reason that users are shown: autoscalers buy nodes for pods that are Unschedulable,
    which are in vain if they are in another domain than the gang (L6).
    """
    fact = refusal.fact
    if isinstance(fact, HomeFull) and not fact.grows:
        return Reason.WAITING_FOR_HOME

    return refusal.reason


def _of_member(refusal: Refusal, see: str) -> PodCondition:
    """The part of a refusal that stays the same, and where to look for the rest."""
    # Where the counts are is a part of what stays: if that changes, all members say so at once.
    text = cut((say(refusal).stable or NO_NODE) + see)
    return PodCondition(refusal.reason, text, text)


def _age(pod: Pod) -> tuple[int, str, str]:
    return pod.creation_s, pod.name, pod.uid


def _place_name(record: GangRecord, place: Pod | None) -> str:
    if place is not None:
        return f"pod {place.key}"

    pod_group = record.pod_group
    if pod_group is None or not pod_group.of_object:
        return f"PodGroup {record.id}"

    return f"{DIALECTS[pod_group.api_group].kind} {pod_group.namespace}/{pod_group.object_name}"


def _alone(refusal: Refusal) -> str:
    """The message of a pod alone, with kube-scheduler's sentence first, which says what is in the
    way.
    """
    sentences = say(refusal)
    if not isinstance(refusal.fact, NoNode):
        return sentences.text

    sentences = structs.replace(sentences, best="")

    first = sentences.now.removesuffix(".")
    return f"{first}. {sentences.stable[:1].upper()}{sentences.stable[1:]}."

"""Claim starts: members of an unsatisfied group whose binds wait for each other's claims (semantics
B7).

Invariant: a bind is sent only if that leaves no part of the group broken (`model.parts`), counting
members that are bound or have bound claims. Decisions are derived from the current members, so no
edits, deletions or late members need to be recorded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangsched.model.parts import without_broken
from gangsched.model.tree import gangs_of
from gangsched.state.cluster import Cluster
from gangsched.state.groups import Registry
from gangsched.state.members import Member, State

LATE: Final = "it waited too long for its volumes"


@dataclass(slots=True)
class Decision:
    """The waits for claims that end now."""

    #: Members whose bind is to be sent.
    sent: list[Member] = field(default_factory=list)
    #: Members whose wait failed, and why; those of one start together.
    ended: list[dict[str, str]] = field(default_factory=list)


class Starts:
    """Decides which waits end; changes only `ClaimsWait.is_alone`."""

    def __init__(self, registry: Registry, cluster: Cluster) -> None:
        self._registry = registry
        self._cluster = cluster

    def group_of(self, member: Member) -> str:
        """Group of a waiting member; the id of its gang while the gang has no group."""
        return self._registry.group_of.get(member.gang, member.gang)

    def together(self, gangs: Iterable[str]) -> dict[str, None]:
        """These gangs, each with all of its group."""
        together: dict[str, None] = {}
        for gang in gangs:
            group = self._registry.groups.get(self._registry.group_of.get(gang, ""))
            together[gang] = None
            if group is not None:
                together |= dict.fromkeys(group.gangs)

        return together

    def decide(
        self,
        waiting: Iterable[Member],
        failed: Mapping[str, str],
        now_s: float,
    ) -> Decision:
        """Decide on these waiting members, of whole groups; `failed` maps uids to the reason why
        their claims cannot be bound.
        """
        decision = Decision()
        starts: defaultdict[str, list[Member]] = defaultdict(list)

        has_begun: dict[str, bool] = {}
        for member in waiting:
            record = self._registry.gangs.get(member.gang)
            if member.wait is None:
                continue

            if record is not None and record.id not in has_begun:
                has_begun[record.id] = bool(record.of(State.BINDING, State.BOUND))

            # Plain pods, replacements and those whose start has left without them wait for their
            # own claims only (B7). If all of that start was refused, they are part of the next.
            is_alone = member.wait.is_alone and has_begun.get(member.gang, True)
            if record is not None and record.minimum_binds and not is_alone:
                starts[self.group_of(member)].append(member)
            elif member.pod.uid in failed:
                decision.ended.append({member.pod.uid: failed[member.pod.uid]})
            elif is_ready(member):
                decision.sent.append(member)

        for group, members in starts.items():
            self._decide_start(decision, group, members, dict(failed), now_s)

        return decision

    def _decide_start(
        self,
        decision: Decision,
        group: str,
        members: list[Member],
        failed: dict[str, str],
        now_s: float,
    ) -> None:
        ready = self._startable(
            group,
            [member for member in members if is_ready(member) and member.pod.uid not in failed],
        )
        # The last look at all nodes, before the first bind leaves (B2).
        closed = {
            member.pod.uid: member.node
            for member in ready
            if not self._cluster.takes(
                member.pod,
                member.node,
                self._registry.own_rooms(member.gang),
            )
        }
        failed |= {uid: f'node "{node}" no longer fits the pod' for uid, node in closed.items()}
        sent = self._startable(group, [member for member in ready if member.pod.uid not in closed])
        decision.sent += sent

        begun = {member.gang for member in sent}
        started = {member.pod.uid for member in sent}

        for member in members:
            if member.wait is not None and member.gang in begun and member.pod.uid not in started:
                # The minimum has started without it. From now on its claims can fail without taking
                # the start back.
                member.wait.is_alone = True

        # Those that failed beside a start that goes on end singly; their gang counts them as lost
        # members.
        waiting = [member for member in members if member.gang not in begun]
        ended = [member for member in members if member.gang in begun and member.pod.uid in failed]

        # One late claim ends the whole start: the others' volumes would be held for a gang that
        # cannot run.
        lost = {
            member.pod.uid
            for member in waiting
            if member.pod.uid in failed or is_late(member, now_s)
        }
        able = self._startable(
            group,
            [member for member in waiting if member.pod.uid not in lost],
            sent,
        )
        goes_on = {member.gang for member in able}
        given_up = [member for member in waiting if member.gang not in goes_on]
        ended += [member for member in waiting if member.gang in goes_on and member.pod.uid in lost]

        if given_up:
            decision.ended.append(_given_up(given_up, failed))

        decision.ended += [{member.pod.uid: failed.get(member.pod.uid, LATE)} for member in ended]

    def _startable(
        self,
        group: str,
        members: Iterable[Member],
        sent: Iterable[Member] = (),
    ) -> list[Member]:
        """Those of these waiting members that leave no part of the group broken if they start,
        after those `sent`.
        """
        chosen = [*members]
        root = self._registry.parts(group)
        records = [self._registry.gangs[gang_id] for gang_id in gangs_of(root.part)]
        begun = Counter(member.gang for member in sent)
        begun.update(
            {
                record.id: len(record.of(State.BINDING, State.BOUND))
                for record in records
                if not record.minimum_binds
            }
        )
        counts = Counter(member.gang for member in chosen) + begun
        counts.update({record.id: record.running for record in records if record.minimum_binds})
        left = without_broken(root, counts, begun)

        return [member for member in chosen if left[member.gang] == counts[member.gang]]


def is_ready(member: Member) -> bool:
    """Whether all claims of a waiting member are bound."""
    return member.wait is not None and member.wait.is_ready


def is_late(member: Member, now_s: float) -> bool:
    """Whether the wait of a member has exceeded its time limit."""
    return member.wait is not None and now_s >= member.wait.deadline_s


def _given_up(members: Iterable[Member], failed: Mapping[str, str]) -> dict[str, str]:
    """Why each member's wait ends with its start. Those whose claims are being written end once
    that is answered.
    """
    # A write under way may still succeed. If its wait ended now, nobody would know what is to be
    # released.
    waiting = [member for member in members if member.wait is not None and member.wait.is_written]
    first: dict[str, Member] = {}

    for each in sorted(waiting, key=lambda each: each.pod.key):
        if each.pod.uid in failed:
            first.setdefault(each.pod.namespace, each)

    causes = {
        namespace: f"pod {each.pod.key}: {failed[each.pod.uid]}"
        for namespace, each in first.items()
    }
    # What is wrong in another namespace is not for this one to know (I4).
    other = (
        "a member of another namespace failed"
        if first
        else "a member was deleted, or waited too long for its volumes"
    )
    return {
        member.pod.uid: failed.get(
            member.pod.uid,
            f"its gang did not start: {causes.get(member.pod.namespace, other)}",
        )
        for member in waiting
    }

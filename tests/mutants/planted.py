"""The planted bugs, as edits: file of the package, the text to replace (found exactly once), what is put there."""

from __future__ import annotations

from dataclasses import dataclass

CORE, STATE, LOOP = "tests/unit/core", "tests/unit/state", "tests/unit/test_loop.py"
VALIDATE = "tests/unit/state/test_validate.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug; `tests` is the folder or file in which some test must fail."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    Mutant(
        "rollback forgets one resource",
        "R2",
        "core/reserve.py",
        "self._add(shape, nodes, counts)\n            self.occupancy",
        "self._add(type(shape)(requests=shape.requests[1:]), nodes, counts)\n            self.occupancy",
        CORE,
    ),
    Mutant(
        "Permit counts terminating pods",
        "B1",
        "model/gang.py",
        "else ready + self.bound",
        "else ready + self.bound + self.terminating",
        CORE,
    ),
    Mutant(
        "quorum counts terminating pods",
        "P1",
        "state/gangs.py",
        "| State.DELETED:\n                count.terminating += 1",
        "| State.DELETED:\n                pending.append(pod)",
        STATE,
    ),
    Mutant(
        "timeout is not written to siblings",
        "T2",
        "state/scheduling.py",
        '"""Every live unbound pod of every gang of the group (semantics T2)."""\n        for gang in group.gangs:',
        '"""Every live unbound pod of every gang of the group (semantics T2)."""\n        for gang in group.gangs[:1]:',
        STATE,
    ),
    Mutant(
        "hold survives the deletion of its pod",
        "R3",
        "state/members.py",
        "State.HELD: {**SEEN, **_STARTED, Change.SEEN_PENDING: State.HELD,",
        "State.HELD: {**SEEN, **_STARTED, **_stays(State.HELD, Change.SEEN_PENDING, Change.SEEN_DELETED),",
        STATE,
    ),
    Mutant(
        "the highest rank yields",
        "D1",
        "core/post_filter.py",
        "holders = [group for group in ordered if group.holds]",
        "holders = [group for group in reversed(ordered) if group.holds]",
        CORE,
    ),
    Mutant(
        "fast fail is off by one",
        "R2",
        "core/rounds.py",
        "len(trial.placed[gang.id]) + untried)",
        "len(trial.placed[gang.id]) + untried + 1)",
        CORE,
    ),
    Mutant(
        "generation is not checked",
        "B2",
        "state/scheduling.py",
        "changed = group is None or group.generation != verdict.generation",
        "changed = group is None",
        STATE,
    ),
    Mutant(
        "safety net is gone",
        "Q3",
        "state/queue.py",
        "if self._swept_s is None or now_s - self._swept_s >= SAFETY_NET_S:",
        "if self._swept_s is None:",
        STATE,
    ),
    Mutant(
        "freed room wakes nobody",
        "Q3",
        "state/cluster.py",
        "self._grown.update(self._nodes if keeps_others_off else (node,))",
        "pass",
        STATE,
    ),
    Mutant(
        "members that the server says are gone are retried",
        "B3",
        "state/members.py",
        "Change.ANSWERED_GONE: State.DELETED,\n        Change.ANSWERED_FAILED: State.RETRY,",
        "Change.ANSWERED_GONE: State.RETRY,\n        Change.ANSWERED_FAILED: State.RETRY,",
        STATE,
    ),
    Mutant(
        "order by name before priority",
        "Q1",
        "core/queue_sort.py",
        "(not group.broken, -group.priority, group.creation_s, group.id)",
        "(not group.broken, group.id, -group.priority, group.creation_s)",
        CORE,
    ),
    Mutant(
        "broken groups queue like others",
        "Q2",
        "core/queue_sort.py",
        "(not group.broken, -group.priority, group.creation_s, group.id)",
        "(False, -group.priority, group.creation_s, group.id)",
        CORE,
    ),
    Mutant(
        "a satisfied gang waits for its siblings",
        "P3",
        "core/pre_filter.py",
        "if faulty or any(gang.timed_out for gang in group.gangs):",
        "if faulty or refusals(group):",
        CORE,
    ),
    Mutant(
        "a gang that has ended declares nothing",
        "I4",
        "state/gangs.py",
        "in TERMINAL)] or members:",
        "in TERMINAL)]:",
        STATE,
    ),
    Mutant("minResources are ignored", "P4", "core/pre_filter.py", "if lack > 0:", "if lack > 2**60:", CORE),
    Mutant(
        "clock restarts with each round",
        "T1",
        "state/scheduling.py",
        "group.clock_s = now_s if group.clock_s is None else group.clock_s",
        "group.clock_s = now_s",
        STATE,
    ),
    Mutant(
        "told text is not deduplicated",
        "E1",
        "state/reports.py",
        "if before is not None and (before.reason, before.text) == (wanted.reason, wanted.text):",
        "if False:",
        STATE,
    ),
    Mutant(
        "one NonStrict gang makes the group NonStrict",
        "R3",
        "model/gang.py",
        "return any(gang.mode is Mode.STRICT for gang in self.gangs)",
        "return all(gang.mode is Mode.STRICT for gang in self.gangs)",
        CORE,
    ),
    Mutant(
        "a gang is tied without its consent",
        "I4",
        "state/groups.py",
        "(found := self.gangs[gang_id].spec) is not None and found.group == group",
        "(found := self.gangs[gang_id].spec) is not None and group is not None",
        STATE,
    ),
    Mutant(
        "the existence of a gang of another namespace is told",
        "I4",
        "state/groups.py",
        "near = tuple(other for other in without if namespace_of(other) == namespace_of(record.id))",
        "near = without",
        STATE,
    ),
    Mutant(
        "a failed bind keeps its room",
        "B3",
        "state/members.py",
        "        Change.ANSWERED_FAILED: State.RETRY,",
        "        Change.ANSWERED_FAILED: State.BINDING,",
        STATE,
    ),
    Mutant(
        "every failed bind of a plan backs off again",
        "Q3",
        "state/queue.py",
        "if self.backs_off(group, now_s):\n            return",
        "if False:\n            return",
        STATE,
    ),
    Mutant(
        "a gang that never started stays satisfied",
        "decision 10",
        "state/member_store.py",
        "if not gang.started and not any(member.state in UNDER_WAY for",
        "if False and not any(member.state in UNDER_WAY for",
        STATE,
    ),
    Mutant(
        "rejecting nodes are not avoided",
        "B6",
        "state/event_handlers.py",
        "group.avoid[pod.node_name] = now_s + self._avoid_s",
        "pass",
        STATE,
    ),
    Mutant(
        "a yield is not told",
        "D1",
        "state/scheduling.py",
        "if verdict.expired or verdict.yields_to:",
        "if verdict.expired:",
        STATE,
    ),
    Mutant(
        "members above the minimum are left behind",
        "B1",
        "core/cycle.py",
        "binds = (*_held(gangs), *trial.placements)\n    told",
        "binds = (*_held(gangs), *trial.placements)[: sum(gang.min_member for gang in gangs)]\n    told",
        CORE,
    ),
    Mutant(
        "a NonStrict gang needs free room for all at once",
        "P4, decision 11",
        "core/pre_filter.py",
        "ledger if group.strict else totals",
        "ledger",
        CORE,
    ),
    Mutant(
        "a timed-out gang goes on until its marks are seen",
        "T3",
        "state/gangs.py",
        "if (pod.timed_out or member.marking) and",
        "if pod.timed_out and",
        STATE,
    ),
    Mutant(
        "a member's room is counted twice when its labels change",
        "I1",
        "state/cluster.py",
        "        if left:\n            self.vacate(old, left)",
        "        if left and left != node:\n            self.vacate(old, left)",
        VALIDATE,
    ),
    Mutant(
        "a member that moves stays with its old gang too",
        "I6",
        "state/member_store.py",
        "        del gang.members[member.pod.uid]",
        "        pass",
        VALIDATE,
    ),
    Mutant(
        "a pod that has ended keeps its room",
        "I1",
        "state/member_store.py",
        "if pod is not None and state in TAKES_ROOM else",
        "if pod is not None and (old_node or state in TAKES_ROOM) else",
        VALIDATE,
    ),
    Mutant(
        "the loop plans in the middle of a burst",
        "decision 8",
        "loop.py",
        "if self._messages or not self._ready():",
        "if not self._ready():",
        LOOP,
    ),
)

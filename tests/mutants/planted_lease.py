"""Planted bugs of leader election: two that lead, or one that writes too late."""

from __future__ import annotations

from tests.mutants.mutant import FENCE, LEASE, LOOP, READ, WRITE, Mutant

LEADER_ELECTION = (
    Mutant(
        "a renewal counts from its answer",
        "B3",
        "kube/lease/candidate.py",
        "        if self._is_ours(record):\n            self._held_s = sent_s",
        "        if self._is_ours(record):\n            self._held_s = now_s",
        LEASE,
    ),
    Mutant(
        "the fence is open for as long as others wait, and longer",
        "B3",
        "kube/lease/candidate.py",
        "return self.duration_s - self.margin_s",
        "return self.duration_s + self.margin_s",
        LEASE,
    ),
    Mutant(
        "a deleted Lease counts as a released one",
        "B3",
        "kube/lease/candidate.py",
        "        if record is None:\n            return\n",
        "        if record is None:\n            self._record = None\n            return\n",
        LEASE,
    ),
    Mutant(
        "a record with our identity is ours",
        "B3",
        "kube/lease/candidate.py",
        "return record.holder == self.identity and _stamp(record) in self._writes",
        "return record.holder == self.identity",
        LEASE,
    ),
    Mutant(
        "a holder that is silent is replaced at once",
        "B3",
        "kube/lease/candidate.py",
        "return self._changed_s + max(record.duration_s, self.timing.duration_s)",
        "return self._changed_s",
        LEASE,
    ),
    Mutant(
        "the fence is not looked at when a connection has opened",
        "B3",
        "kube/http/connection_pool.py",
        "if fence is not None and not fence.is_open():",
        "if fence is not None and not fence.is_open() and not connection.open:",
        FENCE,
    ),
    Mutant(
        "the fence has no say in the other way of sending",
        "B3",
        "kube/http/client.py",
        "        if isinstance(fence, Fence):\n            fence.check()",
        "        if isinstance(fence, Fence):\n            fence.is_open()",
        FENCE,
    ),
    Mutant(
        "a term begins before the past is known",
        "B3",
        "kube/lease/leadership.py",
        "is_ready = catching_up.done() and not holding.done()",
        "is_ready = not holding.done()",
        LEASE,
    ),
    Mutant(
        "a bind that the watch has not shown is planned over",
        "B3",
        "kube/read/catch_up.py",
        "if reached >= newest and not unseen:",
        "if reached >= newest:",
        READ,
    ),
    Mutant(
        "binds that were sent are forgotten with the lease",
        "B3",
        "kube/write/binder.py",
        "if attempt.is_sent or attempt.fault is not None",
        "if attempt.fault is not None",
        WRITE,
    ),
    Mutant(
        "a standby plans",
        "B2",
        "loop.py",
        "        if not self._leads():\n            self._state.refresh(now_s)\n            return False\n",
        "",
        LOOP,
    ),
)

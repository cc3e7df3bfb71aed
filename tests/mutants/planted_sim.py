"""Planted bugs that the histories of `tests/sim` find: of lost answers, paused leaders and watches that end."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DIRECTED = "tests/sim/test_directed.py"

IN_HISTORIES = (
    Mutant(
        "a bind takes whatever pod has that name",
        "B3",
        "kube/write/binding.py",
        '"namespace": bind.namespace, "uid": bind.uid}',
        '"namespace": bind.namespace}',
        DIRECTED,
    ),
    Mutant(
        "a bind without an answer is refused",
        "B3",
        "kube/write/binder.py",
        "return REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S",
        "return 0.0",
        DIRECTED,
    ),
    Mutant(
        "nobody looks at the node before a bind is sent",
        "B2",
        "kube/write/binder.py",
        "if not (attempt.sends_left and self._may_send(bind)):",
        "if not attempt.sends_left:",
        DIRECTED,
    ),
    Mutant(
        "a watch whose past is forgotten is opened there again",
        "Q3",
        "kube/read/reflector.py",
        "relist = relist or self._must_relist(fault)",
        "relist = bool(relist)",
        DIRECTED,
    ),
    Mutant(
        "a holder that is silent is replaced at once, in a history",
        "B3",
        "kube/lease/candidate.py",
        "return self._changed_s + max(record.duration_s, self.timing.duration_s)",
        "return self._changed_s",
        DIRECTED,
    ),
    Mutant(
        "writes leave whatever the fence says",
        "B3",
        "kube/http/connection_pool.py",
        "if fence is not None and not fence.is_open():",
        "if fence is not None and not fence.is_open() and not connection.open:",
        DIRECTED,
    ),
    Mutant(
        "gangs start one member short",
        "B1",
        "core/permit.py",
        "return max(0, gang.min_member - gang.counted(placed))",
        "return max(0, gang.min_member - 1 - gang.counted(placed))",
        DIRECTED,
    ),
    Mutant(
        "a watch hears of no deletions",
        "Q3",
        "kube/read/store.py",
        '        elif kind == "DELETED":\n            self._remove(self.resource.key(wire.metadata))\n',
        "",
        DIRECTED,
    ),
)

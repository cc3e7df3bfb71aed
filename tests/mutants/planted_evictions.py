"""The planted bugs in what is read for preemption and in its writes (rules V)."""

from __future__ import annotations

from tests.mutants.mutant import READ, STATE, WRITE, Mutant

PREEMPTION, EVICTION = "kube/write/preemption.py", "kube/write/eviction.py"

EVICTIONS = (
    Mutant(
        "victims are marked though a member could not be nominated",
        "V13",
        PREEMPTION,
        "if not failed and not over.is_set():",
        "if not over.is_set():",
        WRITE,
    ),
    Mutant(
        "the condition of an evicted pod stays that of the eviction",
        "V13",
        PREEMPTION,
        "            await self._mark(order, over, MARK_AGAIN_S)\n",
        "            await asyncio.sleep(0)\n",
        WRITE,
    ),
    Mutant(
        "evictions of a cancelled preemption are sent",
        "V12",
        PREEMPTION,
        "            self._under_way[order.id].over.set()\n",
        "            self._under_way[order.id].over.clear()\n",
        WRITE,
    ),
    Mutant(
        "an older nomination of a member is written after a newer one",
        "V12",
        PREEMPTION,
        "before = {self._turns[member.uid] for member in members if member.uid in self._turns}",
        "before: set[asyncio.Task[None]] = set()",
        WRITE,
    ),
    Mutant(
        "one denied pod turns preemption off",
        "V14",
        PREEMPTION,
        "if said.may_lack_right and not await self._may_evict(order):",
        "if said.may_lack_right:",
        WRITE,
    ),
    Mutant(
        "an eviction is sent again though it is not wanted any more",
        "V13",
        PREEMPTION,
        "if not self._may_send(order):",
        "if order.delete and not self._may_send(order):",
        WRITE,
    ),
    Mutant(
        "whoever has the name of a victim is evicted",
        "V13",
        EVICTION,
        '{"preconditions": {"uid": order.uid}}',
        '{"gracePeriodSeconds": 0}',
        WRITE,
    ),
    Mutant(
        "a conflict in storage counts as gone",
        "V14",
        EVICTION,
        "if fault.status == NOT_FOUND:",
        "if fault.status in {NOT_FOUND, 409}:",
        WRITE,
    ),
    Mutant(
        "a busy server counts as a budget",
        "V14",
        EVICTION,
        "if told else Said(text)",
        "if told else Said(text, is_refused=True)",
        WRITE,
    ),
    Mutant(
        "the status of an older spec of a budget counts",
        "V7",
        "kube/read/decode.py",
        "if status.observed_generation >= meta.generation else 0",
        "if status.observed_generation >= 0 else 0",
        READ,
    ),
    Mutant(
        "a null selector covers the namespace",
        "V7",
        "kube/read/decode.py",
        "selector=label_selector(wire.spec.selector),",
        "selector=label_selector(wire.spec.selector) or (),",
        READ,
    ),
    Mutant(
        "victims of other schedulers are taken for ours",
        "V24",
        "kube/read/decode.py",
        '        (each.type, each.status, each.reason, each.message)\n        == (DISRUPTION_TARGET, "True", '
        "PREEMPTED_BY_SCHEDULER, VICTIM_MESSAGE)",
        '        (each.type, each.status, each.reason) == (DISRUPTION_TARGET, "True", PREEMPTED_BY_SCHEDULER)',
        READ,
    ),
    Mutant(
        "budgets that nobody can read forbid nothing",
        "V26",
        "state/preemption/disruption_budgets.py",
        "return self._snapshot if self._readable else None",
        "return self._snapshot",
        STATE,
    ),
)

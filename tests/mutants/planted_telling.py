"""Planted bugs that newcomers met: half a gang beside a shared claim, and sentences that do not name the culprit."""

from __future__ import annotations

from tests.mutants.mutant import CORE, STATE, Mutant

TELLING = (
    Mutant(
        "a shared claim is provisioned anew for each member's node",
        "P4",
        "core/filter/volumes/storage_use.py",
        'self.storage.volumes.get(self._taken.volume_of.get(claim.key, ""))',
        'self.storage.volumes.get("")',
        CORE,
    ),
    Mutant(
        "what closes nodes that would do is not told",
        "E1",
        "core/diagnosis.py",
        "        found.append(text)\n",
        "",
        CORE,
    ),
    Mutant(
        "a lost member that nobody replaces is being bound",
        "E3",
        "state/reporting/status.py",
        "elif gang.satisfied and not gang.waiting and not record.of(*UNDER_WAY):",
        "elif False:",
        STATE,
    ),
)

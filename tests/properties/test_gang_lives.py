"""E3, E8: for random lives of a gang, the phase, the counts and the reason of its PodGroup equal an
oracle written from the semantics alone.

`make lives LIVES=10000 SEED=1` plays more of them than the gate does.
"""

from __future__ import annotations

import os

from gangsched.model.protocol import SetPodGroupStatus
from tests.gang_lives import STEPS, GangLife
from tests.gang_phase_oracle import Oracle
from tests.phase_histories import faults

LIVES = int(os.environ.get("LIVES", "60"))
SEED = int(os.environ.get("SEED", "20261129"))
REPORTED_S = 6.0
"""After this long every count is stored (E3)."""
RESTORED_S = 61.0
AWAY = frozenset({"restart", "restart while writing", "lost while away"})


def test_phase_and_counts_are_those_of_the_semantics() -> None:
    """E3, E8: each life of the seed, at each moment at which gangsched has had time to report."""
    compared = sum(play(SEED + number) for number in range(LIVES))
    print(f"{LIVES} lives from seed {SEED}: {compared} statuses compared")
    assert compared > 3 * LIVES


def play(seed: int) -> int:
    """Play one life; returns how many statuses were compared."""
    life = GangLife(seed)
    oracle = Oracle()
    life.world.settle()
    oracle.observe(life.world.pods.values(), life.world.now_s)
    compared = 0
    overwritten_s = -RESTORED_S

    for _ in range(STEPS):
        event = life.step()
        if event in AWAY:
            oracle.restarted(life.world.pods.values(), life.world.now_s, said=life.said)
        else:
            oracle.observe(life.world.pods.values(), life.world.now_s)

        if event == "overwrite":
            overwritten_s = life.world.now_s

        # A gang that has finished may be short of a minimum that is raised afterwards.
        if event == "minimum":
            assert faults(life.stored) == [], _where(life)
            life.stored.clear()

        passed_s = life.pass_time()
        rests = life.world.now_s - overwritten_s >= RESTORED_S
        if passed_s >= REPORTED_S and rests:
            compared += compare(life, oracle)

    assert faults(life.stored) == [], _where(life)
    return compared


def compare(life: GangLife, oracle: Oracle) -> bool:
    """The stored status is what the semantics say; False while nothing is to be told."""
    told = oracle.told(
        life.world.pods.values(),
        life.pod_group.min_member or 0,
        life.world.now_s,
    )
    if told is None:
        return False

    status = life.pod_group.status
    assert status["phase"] == told.phase, _where(life)
    counts = {name: status[name] for name in told.counts}
    assert counts == told.counts, _where(life)
    conditions = status["conditions"]
    assert isinstance(conditions, list)
    (scheduled,) = [each for each in conditions if each["type"] == "Scheduled"]
    assert (scheduled["status"] == "True") is told.scheduled, _where(life)
    assert scheduled["reason"] in told.reasons, _where(life)
    return True


def _where(life: GangLife) -> str:
    """What happened in this life, for whoever must find out why."""
    pods = [
        f"{pod.name} {pod.phase} {pod.node_name or 'unbound'}{' deleting' if pod.deleting else ''}"
        for pod in life.pods
    ]
    written = [
        str(report.status.get("phase"))
        for report in life.world.reports
        if isinstance(report, SetPodGroupStatus)
    ]
    last = [f"written: {' '.join(written)}", str(life.pod_group.status)]
    return "\n".join([f"seed {life.seed}", *life.story, *pods, *last])

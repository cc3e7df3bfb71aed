"""The virtual fight: what it counts, and that the model of kube-scheduler chooses victims as
kube-scheduler does.
"""

from __future__ import annotations

from bench.fight.count import Count
from bench.fight.kube_model import KubeModel
from bench.fight.load import OURS, THEIRS, Job, arrivals
from bench.fight.virtual import Agenda, play_gangs, play_pods


def job(priority: str) -> Job:
    """The first of that priority in the small load."""
    return next(
        job for _, job, _ in arrivals(THEIRS, "small", 1.0, 1) if job.kind.priority == priority
    )


def test_gang_that_falls_below_its_minimum_is_stopped_once() -> None:
    """What its other pods do after that is work in vain, and they are counted as evicted."""
    counted, low = Count(), job("low")
    names = list(low.bodies)
    for each in (low, job("high")):
        counted.arrived(each, 0.0)
    for name in names:
        counted.bound(low, name, 10.0)
    for name in names[:5]:
        counted.evicted(low, name, 20.0)
    counted.evicted(low, names[5], 30.0)
    figures = counted.figures(OURS, "small", 1.0, 30.0)
    assert (figures.evicted_pods, figures.gangs_stopped) == (6, 1)
    assert (figures.work_lost, figures.gang_work_lost, figures.work_in_vain) == (
        5 * 10 + 20,
        4 * 10,
        3 * 10,
    )


def test_both_play_the_same_jobs() -> None:
    """Gangs of ours have no pods below the minimum at work, single pods have. The highest priority
    starts in both.
    """
    ours, theirs = play_gangs("large", 2.0, 1, hold_back_s=60), play_pods("large", 2.0, 1)
    assert ours.jobs == theirs.jobs > 0
    assert ours.work_in_vain == 0 < theirs.work_in_vain
    assert ours.high_not_started == theirs.high_not_started == 0
    assert ours.evicted_pods > 0


def test_model_evicts_no_more_than_are_in_the_way() -> None:
    """Eight low pods are spread over eight nodes; two pods that need a node each take the place of
    two.
    """
    counted, agenda = Count(), Agenda()
    model = KubeModel(counted, agenda, 1, recreated_after_s=1_000.0)
    low, high = job("low"), job("high")
    for each in (low, high):
        model.arrive(each)
        while agenda.next_s < model.now_s + 10.0:
            model.now_s = agenda.next_s
            agenda.happen(model.now_s)
    assert counted.figures(THEIRS, "small", 1.0, model.now_s).evicted_pods == 2
    assert (len(low.bound), len(high.bound)) == (6, 2)

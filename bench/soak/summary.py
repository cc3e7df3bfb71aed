"""What a soak found, in one summary, and which of its goals are missed."""

from __future__ import annotations

from collections.abc import Sequence

from bench.soak.samples import MINUTE_S, Sample, descriptors_growth, rss_slope

WARM_UP_S = 600.0
GOAL_MB_PER_HOUR = 2.0
MOST_DESCRIPTORS = 3


def judge(samples: Sequence[Sample], found: Sequence[str]) -> list[str]:
    """Print the summary; the goals that are missed."""
    warm_s = min(WARM_UP_S, samples[-1].at_s / 3)
    late = [sample for sample in samples if sample.at_s >= warm_s]
    grows, error = rss_slope(late)
    more = descriptors_growth(late)
    few, many = min(each.descriptors for each in late), max(each.descriptors for each in late)
    print(
        f"summary of {len(late)} samples from {late[0].at_s / MINUTE_S:.1f} to"
        f" {late[-1].at_s / MINUTE_S:.1f} minutes\n  resident memory  {late[0].rss_mb:.1f} to"
        f" {late[-1].rss_mb:.1f} MB: {grows:+.2f} MB an hour, standard error {error:.2f}; the goal"
        f" is less than {GOAL_MB_PER_HOUR:g}\n  descriptors      {few} to {many}; the last third"
        f" has {more:+g} beside the first; the goal is {MOST_DESCRIPTORS} more at most\n  caches   "
        f"        {'equal to a LIST of everything' if not found else f'{len(found)} differences'}\n"
        f"  event loop       longest stall {late[-1].stall_s:.3f} s since the start,"
        f" {max(sample.lag_s for sample in late):.3f} s at a sample\n  API server      "
        f" {max(sample.events for sample in late)} Events waited for it at most"
    )
    for each in found[:20]:
        print(each)
    missed = [f"memory grows by {grows:.2f} MB an hour"] if grows >= GOAL_MB_PER_HOUR else []
    missed += (
        [f"the last third has {more:g} descriptors more than the first"]
        if more > MOST_DESCRIPTORS
        else []
    )
    missed += ["the caches differ from the LIST"] if found else []
    print(f"  goals            {'met' if not missed else 'missed: ' + '; '.join(missed)}")
    return missed

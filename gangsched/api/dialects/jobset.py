"""JobSet's pod annotations for exclusive placement: each Job gets its own topology domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangsched.api import keys
from gangsched.api.problem import Problem, quoted


def exclusive_jobs(
    pods: Iterable[tuple[str, Mapping[str, str]]],
    min_member: int | None,
) -> list[Problem]:
    """Report exclusive placement: JobSet creates the other pods of a Job only after its first pod
    has a node, so a gang would wait indefinitely.

    `pods` are pairs of a pod's name and its keys; the first pod with such a key is reported.
    """
    for pod, stated in pods:
        value = stated.get(keys.JOBSET_EXCLUSIVE)
        if value is not None and keys.JOBSET_NODE_SELECTOR not in stated and (min_member or 0) > 1:
            text = (
                f"{keys.JOBSET_EXCLUSIVE} of pod {pod}: JobSet creates the other pods of a Job"
                " after its first one has a node, so a minimum above the number of Jobs is never"
                f" reached; remove the annotation, or use {keys.JOBSET_NODE_SELECTOR}."
            )
            return [Problem(keys.JOBSET_EXCLUSIVE, quoted(value), "", text, pod)]

    return []

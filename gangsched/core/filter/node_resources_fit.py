"""kube-scheduler's NodeResourcesFit: exact integers, free = allocatable - requested, never floats.

A resource that is not requested is never insufficient, so a request vector without zero entries is all there is to
check; the pod itself is the resource `pods`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangsched.model.objects import Shape
from gangsched.model.resources import PODS
from gangsched.model.snapshot import Bools, Ints


def room(shape: Shape, free: Ints, resources: Mapping[str, int]) -> Ints:
    """`room[node]`: how many pods of `shape` fit into `free[r][node]`; 0 where a resource is unknown or over-used."""
    fits: Ints | None = None
    for name, amount in shape.requests:
        row = resources.get(name)
        if row is None:
            return np.zeros(free.shape[1], dtype=np.int64)
        count = free[row] // amount
        fits = count if fits is None else np.minimum(fits, count, out=fits)
    if fits is None:
        raise AssertionError("a shape always requests at least `pods`")
    return np.maximum(fits, 0, out=fits)


def insufficient(shape: Shape, free: Ints, resources: Mapping[str, int], nodes: Bools) -> dict[str, int]:
    """How many of `nodes` lack room for one more pod, per refusal text; one node may count under several texts."""
    counts: dict[str, int] = {}
    for name, amount in shape.requests:
        row = resources.get(name)
        short = int(nodes.sum()) if row is None else int((free[row][nodes] < amount).sum())
        if short:
            counts["Too many pods" if name == PODS else f"Insufficient {name}"] = short
    return counts

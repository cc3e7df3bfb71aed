"""Preferred levels: the scopes in which a whole group is tried before only its required levels
apply.

If the gang declares a level, the preferred level is the finest one, from the declared level
upwards, at which one domain holds all members; if there is none, it is the declared level, with as
few domains as possible. Gangs with accelerators that declare no level prefer the finest known
level. No level is preferred for members that soft terms spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.search.candidate import ANYWHERE, ScopeCandidate
from gangsched.core.search.demand import Demand
from gangsched.core.search.domains import Domains, Required, required_keys
from gangsched.core.search.judging import MAX_SHAPES, judge
from gangsched.core.topology import climb, level, told_apart
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import PRODUCT_LABEL
from gangsched.model.objects import Shape

PREFERENCE_WORK = 2_800
"""Units beyond which only the best domain of each level is tried for a preference: a tenth of a
plan.
"""


def candidates(gangs: Sequence[Gang], attempt: PlacementAttempt) -> Iterator[ScopeCandidate]:
    """Yield candidates for the pending members of `gangs`, best first, until one succeeds."""
    group = attempt.group
    ledger = attempt.ledger
    must = any(required_keys(group, ledger))
    may = not group.apart and _may_prefer(group, ledger)
    if not must and not may:
        yield ANYWHERE
        return

    begun = ledger.work.used
    present = Demand.of_all(gangs, attempt)

    required = Required.of(group, present) if must else None
    if may and (required is None or required.enough.any()):
        yield from _preferred(present, required, begun)

    yield from [ANYWHERE] if required is None else required.candidates()


def _preferred(
    present: Demand,
    required: Required | None,
    begun: int,
) -> Iterator[ScopeCandidate]:
    """Domains of preferred levels that sums leave, within those that are required; `begun` is the
    work until now.
    """
    group = present.group
    work = present.ledger.work

    for domains in _levels(group, present):
        enough, _ = domains.judge(present)
        if required is not None:
            enough &= required.enough[domains.level.inside(required.domains.level)]

        for number, n in enumerate(domains.order(np.flatnonzero(enough), present)):
            # A preference must not take the work that finding any place needs.
            if number and work.used - begun > PREFERENCE_WORK:
                break

            yield ScopeCandidate(domains.scope(n), whole=True)
            if not present.is_searched and present.is_exact:
                break  # sums are exact then: what did not do is more than room

    union = _fewest(group, present)
    if union is not None:
        yield union


def _stated(group: Group) -> str:
    """The level that the first gang with a preference states; "" without any."""
    return next(
        (gang.constraints.preferred for gang in group.gangs if gang.constraints.preferred), ""
    )


def _may_prefer(group: Group, ledger: Ledger) -> bool:
    if _stated(group):
        return True

    table = ledger.table
    labels = (*ledger.policy.topology_keys, PRODUCT_LABEL)
    return any(table.label_column(key).values for key in labels)


def _levels(group: Group, present: Demand) -> Iterator[Domains]:
    """Levels that are preferred, the closest first, what is required among each of them."""
    ledger = present.ledger
    stated = _stated(group)

    shapes = {item.shape for item in present.items}
    if len(shapes) > MAX_SHAPES or (not stated and _on_one_node(present)):
        return

    table = ledger.table
    topology, must = required_keys(group, ledger)
    product = (PRODUCT_LABEL,) if table.label_column(PRODUCT_LABEL).values else ()

    if stated:
        if not any(map(ledger.accelerated, shapes)):
            product = ()

        sets = _stated_sets(stated, product, ledger)
    else:
        is_spread = any(map(prefers_spreading, shapes))
        sets = _known_sets(() if is_spread else ledger.policy.topology_keys, product, ledger)

    outer = level(topology, table) if topology else None
    of_must = level(must, table)

    distinct: dict[tuple[str, ...], None] = {}
    for keys in sets:
        more = [key for key in keys if key not in must]
        distinct[*must, *more] = None

    for keys in distinct:
        inner = level(keys, table)
        # else it cuts no finer than what is required, if anything
        if not np.array_equal(inner.codes, of_must.codes):
            is_kept = stated and PRODUCT_LABEL not in keys
            if stated and not is_kept:
                yield Domains(inner, level([key for key in keys if key != PRODUCT_LABEL], table))
            else:
                yield Domains(inner, inner if is_kept else outer)


def _stated_sets(
    stated: str,
    product: tuple[str, ...],
    ledger: Ledger,
) -> list[tuple[str, ...]]:
    """The labels of the stated level and of coarser ones, each with one GPU product first."""
    sets = []
    for key in climb(stated, ledger.policy.topology_keys, ledger.table):
        keys = _apart(key, ledger)
        if product:
            sets.append((*keys, *product))

        sets.append(keys)

    return sets


def _known_sets(
    wanted: Sequence[str],
    product: tuple[str, ...],
    ledger: Ledger,
) -> list[tuple[str, ...]]:
    """The labels of the known levels: all with one GPU product, then the product, then without."""
    known = []
    for key in wanted:
        if ledger.table.label_column(key).values:
            known.append(_apart(key, ledger))

    with_product = [(*keys, *product) for keys in known]
    return [*with_product, product, *known]


def _apart(key: str, ledger: Ledger) -> tuple[str, ...]:
    """The labels that tell the domains of a level apart: its own, and coarser ones where its values
    repeat.
    """
    return told_apart(key, ledger.policy.topology_keys, ledger.table)


def _fewest(group: Group, present: Demand) -> ScopeCandidate | None:
    """The fewest domains of the stated level that sums allow, the largest first and the last as
    tight as possible.
    """
    stated = _stated(group)
    ledger = present.ledger
    if not stated or not ledger.table.label_column(stated).values or not present.items:
        return None

    _, must = required_keys(group, ledger)
    inner = level((*must, *_apart(stated, ledger)), ledger.table)
    _, holds = judge(present, inner)
    needed = sum(present.needs)
    order = np.argsort(-holds, kind="stable")
    sums = np.cumsum(holds[order])

    number = int(np.searchsorted(sums, needed))
    # several domains of a level inside what is required: the round decides
    if number == len(order) or must:
        return None

    chosen = order[:number].tolist()
    rest = needed - (int(sums[number - 1]) if number else 0)
    tight = []
    for n in order[number:].tolist():
        if holds[n] >= rest:
            tight.append(n)

    chosen.append(tight[-1])
    mask = np.isin(inner.codes, chosen)

    scope = Scope(
        mask,
        mask,
        f"node(s) are outside the preferred domains of {stated}",
        name=f"few {stated}",
    )
    return ScopeCandidate(scope, whole=True)


def _on_one_node(present: Demand) -> bool:
    """Whether no preference matters: nothing asks for an accelerator, or one node takes all that
    does.
    """
    number = 0
    accelerated = []
    shapes = set()
    for i, item in enumerate(present.items):
        if present.ledger.accelerated(item.shape):
            number += len(item.pods)
            accelerated.append(i)
            shapes.add(item.shape)

    if len(shapes) != 1:
        return not shapes

    room = present.room[accelerated[0]]
    return int(room.max(initial=0)) >= number


def prefers_spreading(shape: Shape) -> bool:
    """Whether pods of `shape` prefer nodes away from some others."""
    return bool(
        shape.constraints.soft_spread
        or any(weighted_pod_term.weight < 0 for weighted_pod_term in shape.constraints.preferred)
    )

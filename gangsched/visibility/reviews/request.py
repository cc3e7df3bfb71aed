"""PlacementReview: the request, parsed and validated before anything is planned.

Invariant: an invalid request is refused, and the answer names the invalid field (400, 422). Sizes
are limited, so that the cost of a plan is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from gangsched.api.problem import quoted
from gangsched.api.values import INT32_MAX, BadValue, parse_parent
from gangsched.model.gang import Mode
from gangsched.visibility.ports import API_VERSION
from gangsched.visibility.statuses import RequestRefused, invalid

KIND = "PlacementReview"
POD_SETS = 32
PODS = 1_000
PARTS = 64
DEPTH = 100
WORDS = 500
"""Levels of a body, more than any API has, and the most of it that a refusal repeats."""
MOST_NAME = 253
TERMS = 200
"""Entries of selectors, tolerations and affinity terms of one template: each is compared with every
node.
"""


class GangSettings(msgspec.Struct, rename="camel"):
    """Settings of the gang in the review, used if its pod templates do not set them.

    With `existing` the review is about the gang of that name as it is, and has nothing else.
    """

    existing: str = ""
    name: str = ""
    min: int | None = None
    mode: str | None = None
    priority: int | None = None
    priority_class_name: str = ""


class ReviewPart(msgspec.Struct, rename="camel"):
    """A gang or parent of a tree (I9): `min` is in pods, `min_children` in children, `topology` as
    in an annotation.
    """

    name: str = ""
    parent: str = ""
    min: int | None = None
    min_children: int | None = None
    topology: str = ""


class PodSet(msgspec.Struct):
    """`count` pods of one template, members of the gang `part` of a tree."""

    name: str = ""
    count: int = 1
    part: str = ""
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class ReviewSpec(msgspec.Struct, rename="camel"):
    """The spec of a review: the whole gang, or the tree that its parts form."""

    gang: GangSettings = msgspec.field(default_factory=GangSettings)
    parts: list[ReviewPart] = msgspec.field(default_factory=list)
    pod_sets: list[PodSet] = msgspec.field(default_factory=list)


class Review(msgspec.Struct, rename="camel"):
    """A PlacementReview as received."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] | None = None
    spec: ReviewSpec = msgspec.field(default_factory=ReviewSpec)


def read_review(body: bytes) -> Review:
    """Parse the body. Raises RequestRefused (400, 422)."""
    # Before decoding: everything that walks a template recurses as deep.
    if _depth(body) > DEPTH:
        raise RequestRefused(400, f"the body is no {KIND}: it has more than {DEPTH} levels")

    try:
        review = msgspec.json.decode(body, type=Review)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestRefused(400, f"the body is no {KIND}: {error}"[:WORDS]) from None

    if (review.api_version, review.kind) not in {(API_VERSION, KIND), ("", "")}:
        found = f"{review.kind} of {review.api_version}"[:WORDS]
        raise RequestRefused(400, f"the body is a {found}, not a {KIND} of {API_VERSION}")

    complaints = list(_complaints(review.spec))
    if complaints:
        raise invalid(KIND, str((review.metadata or {}).get("name", "")), complaints)

    return review


def mode_of(gang: GangSettings) -> Mode | None:
    """The requested mode."""
    return Mode(gang.mode) if gang.mode is not None else None


def _depth(body: bytes) -> int:
    """How many levels a body has at most: brackets in texts count, too, so that the scan is a cheap
    one.
    """
    # In numpy: a loop over half a megabyte would block the event loop.
    read = np.frombuffer(body, np.uint8)
    opened, closed = (np.isin(read, list(marks)) for marks in (b"[{", b"]}"))
    return int(
        np.cumsum(opened.astype(np.int8) - closed.astype(np.int8), dtype=np.int32).max(initial=0)
    )


def _complaints(spec: ReviewSpec) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    gang = spec.gang
    if gang.existing:
        return list(_complaints_of_existing(spec))

    sets = spec.pod_sets
    if not 1 <= len(sets) <= POD_SETS:
        found.append(("spec.podSets", f"there are {len(sets)}; 1 to {POD_SETS} are possible"))

    if any(pod_set.count < 1 for pod_set in sets) or sum(pod_set.count for pod_set in sets) > PODS:
        found.append(
            ("spec.podSets", f"each count is at least 1, and all together are at most {PODS}")
        )

    if len({pod_set.name for pod_set in sets}) < len(sets):
        found.append(("spec.podSets", "their names differ"))

    if gang.min is not None and gang.min < 1:
        found.append(("spec.gang.min", "it is at least 1"))

    if gang.mode is not None and gang.mode not in {mode.value for mode in Mode}:
        found.append(("spec.gang.mode", f"it is {' or '.join(mode.value for mode in Mode)}"))

    if gang.priority is not None and not -(2**31) <= gang.priority < 2**31:
        found.append(("spec.gang.priority", "it has 32 bits"))

    if len(gang.name) > MOST_NAME:
        found.append(("spec.gang.name", f"it has at most {MOST_NAME} characters"))

    found += _complaints_of_parts(spec)
    # Only as many as are permitted: the request is refused anyway, and must be cheap.
    for number, each in enumerate(sets[:POD_SETS]):
        if _size(each.template.get("spec")) > TERMS:
            found.append(
                (
                    f"spec.podSets[{number}].template.spec",
                    f"it has more than {TERMS} selectors and tolerations",
                )
            )

    return found


def _complaints_of_existing(spec: ReviewSpec) -> Iterator[tuple[str, str]]:
    if spec != ReviewSpec(gang=GangSettings(existing=spec.gang.existing)):
        yield "spec.gang.existing", "with it the spec has nothing else"

    if len(spec.gang.existing) > MOST_NAME:
        yield "spec.gang.existing", f"it has at most {MOST_NAME} characters"


def _complaints_of_parts(spec: ReviewSpec) -> Iterator[tuple[str, str]]:
    names = [review_part.name for review_part in spec.parts]
    if len(names) > PARTS:
        yield "spec.parts", f"there are {len(names)}; at most {PARTS} are possible"

    if len(set(names)) < len(names):
        yield "spec.parts", "their names differ"

    for number, each in enumerate(spec.parts[:PARTS]):
        try:
            if not (parse_parent(each.name) and (parse_parent(each.parent) or True)):
                yield f"spec.parts[{number}].name", "a part has a name"
        except BadValue as bad:
            yield f"spec.parts[{number}]", f"its name or that of its parent {bad}"

        if any(
            least is not None and not 0 <= least <= INT32_MAX
            for least in (each.min, each.min_children)
        ):
            yield f"spec.parts[{number}]", f"min and minChildren are 0 to {INT32_MAX}"

    if spec.parts and spec.gang.min is not None:
        yield "spec.gang.min", "each part has its own"

    if bad_sets := [
        str(number)
        for number, each in enumerate(spec.pod_sets)
        if bool(each.part) != bool(spec.parts)
    ]:
        yield (
            f"spec.podSets[{bad_sets[0]}].part",
            "with spec.parts each set names one, and else none does",
        )
    elif spec.parts and (unknown := {pod_set.part for pod_set in spec.pod_sets} - {*names}):
        yield "spec.podSets", f"there is no part {quoted(min(unknown))}"


def _size(spec: Any) -> int:
    """How much there is to compare with nodes and other pods."""
    if not isinstance(spec, dict):
        return 0

    constraints = (
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "resourceClaims",
    )
    return sum(_leaves(spec.get(key)) for key in constraints)


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        if value:
            return sum(1 + _leaves(each) for each in value.values())

        return 0

    if isinstance(value, list):
        return sum(1 + _leaves(each) for each in value)

    return 0

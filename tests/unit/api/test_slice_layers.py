"""What a gang says of its slices: read in full, or the gang waits with a sentence
(semantics I3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.gang_spec import Mode
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.objects import Pod
from tests import builders
from tests.unit.api.test_gang_spec import pod, pod_group, spec_of


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4", "is not a JSON list like"),
        ("[4]", "is not a JSON list like"),
        ('[{"size": 4}]', '"topology" is not a label key'),
        ('[{"size": 4, "topology": "no label"}]', '"topology" is not a label key'),
        ('[{"size": 0, "topology": "rack"}]', '"size" is not a positive number of pods'),
        ('[{"size": true, "topology": "rack"}]', '"size" is not a positive number of pods'),
        ('[{"size": 4, "topology": "rack", "count": 1}]', 'has the unknown field "count"'),
        ('[{"size": 4, "preferred": "rack"}]', 'has a "preferred" level of slices'),
        (
            '[{"size": 6, "topology": "zone"}, {"size": 4, "topology": "rack"}]',
            "slices of 4 inside slices of 6, whose size must be",
        ),
        (
            '[{"size": 4, "topology": "zone"}, {"size": 4, "topology": "rack"}]',
            "slices of 4 inside slices of 4",
        ),
        (
            '[{"size": 4, "topology": "rack"}, {"size": 2, "topology": "rack"}]',
            "names the same label in two layers",
        ),
        (
            "[" + ",".join(f'{{"size": {2**n}, "topology": "k{n}"}}' for n in (4, 3, 2, 1)) + "]",
            "lists more than 3",
        ),
    ],
)
def test_slices_that_cannot_be_kept_as_stated_keep_the_gang_waiting(text: str, why: str) -> None:
    """I3: the sentence says what is wrong; started without them the gang would be spread over
    racks.
    """
    spec = spec_of(pod(gang_metadata={keys.SLICES[0]: text}), group=pod_group(min_member=16))
    assert spec.waiting_for is not None
    assert why in spec.waiting_for
    assert ". Correct or remove " in spec.waiting_for


def test_slices_larger_than_the_gang_keep_it_waiting() -> None:
    """I3: an elastic gang states its total; one layer inside the other is read as such."""
    stated = {keys.SLICES[0]: '[{"size": 8, "topology": "zone"}, {"size": 4, "topology": "rack"}]'}
    too_large = spec_of(pod(gang_metadata=stated), group=pod_group(min_member=4))
    assert too_large.waiting_for is not None
    assert "slices of 8 pods (gangsched.dev/slices of pod ns/" in too_large.waiting_for
    assert (
        f"are larger than gang ns/g of 4 pods. Correct the slices, or {keys.TOTAL[0]}"
        in too_large.waiting_for
    )
    elastic = spec_of(
        pod(gang_metadata={**stated, keys.TOTAL[0]: "16"}), group=pod_group(min_member=4)
    )
    assert elastic.waiting_for is None
    assert elastic.constraints.slices == (SliceLayer(8, "zone"), SliceLayer(4, "rack"))


def test_a_gang_with_slices_is_strict() -> None:
    """I3: slices are placed whole, which is told where NonStrict was stated."""
    stated = {keys.SLICES[0]: '[{"size": 2, "topology": "rack"}]', keys.MODE[0]: "NonStrict"}
    spec = spec_of(pod(gang_metadata=stated), group=pod_group(min_member=4))
    assert spec.mode is Mode.STRICT
    assert [problem.key for problem in spec.problems] == [keys.MODE[0]]
    assert (
        "cannot be combined with slices, which are placed whole. Used instead: Strict (slices)."
        in spec.problems[0].text
    )


# --- Kueue's annotations ------------------------------------------------------------------------

REQUIRED, CONSTRAINTS = keys.KUEUE_TOPOLOGY[0], keys.SLICES[1]


def kueue_pod(annotations: Mapping[str, str], name: str = "p", **fields: Any) -> Pod:
    """A pod of a Kueue group with these annotations, read as from the API server."""
    metadata = pod_gang_metadata({keys.KUEUE_NAME: "g"}, {keys.KUEUE_TOTAL: "4", **annotations})
    return msgspec.structs.replace(pod(name), gang_metadata=metadata, **fields)


def test_kueues_required_level_holds_beside_our_own() -> None:
    """I3: what two projects require of one gang, both require; a preference is the first that is
    stated.
    """
    spec = spec_of(
        kueue_pod({REQUIRED: "rack", keys.TOPOLOGY[0]: "zone", keys.PREFERRED_TOPOLOGY[1]: "block"})
    )
    assert spec.constraints.topology == ("rack", "zone")
    assert spec.constraints.preferred == "block"
    assert spec.waiting_for is None
    bad = spec_of(kueue_pod({REQUIRED: "no label"}))
    assert bad.waiting_for is not None
    assert f"{REQUIRED} of pod ns/p is not a label key" in bad.waiting_for


@pytest.mark.parametrize(
    "annotations",
    [
        {keys.KUEUE_SLICE_TOPOLOGY: "rack", keys.KUEUE_SLICE_SIZE: "2"},
        {CONSTRAINTS: '[{"topology": "rack", "size": 2}]'},
    ],
)
def test_kueues_slices_are_ours(annotations: Mapping[str, str]) -> None:
    """I3: in either form; our own annotation comes first."""
    assert spec_of(kueue_pod(annotations)).constraints.slices == (SliceLayer(2, "rack"),)
    own = {keys.SLICES[0]: '[{"size": 4, "topology": "zone"}]'}
    assert spec_of(kueue_pod({**annotations, **own})).constraints.slices == (SliceLayer(4, "zone"),)


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({keys.KUEUE_SLICE_TOPOLOGY: "rack"}, '"size" is not a positive number of pods'),
        (
            {keys.KUEUE_SLICE_TOPOLOGY: "rack", keys.KUEUE_SLICE_SIZE: "two"},
            '"size" is not a positive number of pods',
        ),
        ({keys.KUEUE_SLICE_SIZE: "2"}, '"topology" is not a label key'),
        (
            {
                keys.KUEUE_SLICE_TOPOLOGY: "rack",
                keys.KUEUE_SLICE_SIZE: "2",
                CONSTRAINTS: '[{"size": 2, "topology": "rack"}]',
            },
            "is not a JSON list",
        ),
        ({keys.KUEUE_SLICE_TOPOLOGY: "rack", keys.KUEUE_SLICE_SIZE: "8"}, "are larger than gang"),
    ],
)
def test_kueues_slices_that_cannot_be_kept_keep_the_gang_waiting(
    annotations: Mapping[str, str], why: str
) -> None:
    """I3: one annotation without the other, both forms, no number, more than there are pods."""
    spec = spec_of(kueue_pod(annotations))
    assert spec.waiting_for is not None
    assert why in spec.waiting_for


def test_kueues_levels_bind_the_whole_gang_or_it_waits() -> None:
    """I3: Kueue states them for each set of pods; a gang that differs is not placed as if it did
    not.
    """
    spec = spec_of(kueue_pod({REQUIRED: "rack"}, "a"), kueue_pod({}, "b"))
    assert spec.waiting_for is not None
    assert f"{REQUIRED} differs between ns/a, ns/b" in spec.waiting_for


def test_what_kueue_has_placed_itself_is_not_placed_again() -> None:
    """I3: selectors say all of it then, also where sets of pods differ; a selector of the user's
    own says nothing.
    """
    chosen = builders.shape(node_selector=(("kubernetes.io/hostname", "n1"),))
    stated = {REQUIRED: "rack", keys.KUEUE_SLICE_TOPOLOGY: "rack", keys.KUEUE_SLICE_SIZE: "2"}
    admitted = kueue_pod(stated, "a", shape=chosen, labels={"kueue.x-k8s.io/tas": "true"})
    spec = spec_of(admitted, kueue_pod({}, "b"))
    assert (spec.waiting_for, spec.constraints.topology, spec.constraints.slices) == (None, (), ())
    assert spec_of(kueue_pod(stated, "a", shape=chosen)).constraints.topology == ("rack",)


def test_exclusive_jobs_that_a_gang_waits_for_are_told() -> None:
    """E4: JobSet creates the other pods of a Job when its first one runs, but not for labelled
    nodes.
    """
    exclusive = {keys.JOBSET_EXCLUSIVE: "rack"}
    spec = spec_of(kueue_pod(exclusive))
    assert spec.waiting_for is None
    assert [problem.key for problem in spec.problems] == [keys.JOBSET_EXCLUSIVE]
    assert "a minimum above the number of Jobs is never reached" in spec.problems[0].text
    assert not spec_of(kueue_pod({**exclusive, keys.JOBSET_NODE_SELECTOR: "true"})).problems
    assert not spec_of(kueue_pod({**exclusive, keys.MIN[0]: "1"})).problems

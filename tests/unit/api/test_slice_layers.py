"""What a gang says of its slices: read in full, or the gang waits with a sentence (semantics I3)."""

from __future__ import annotations

import pytest

from gangsched.api import keys
from gangsched.api.gang_spec import Mode
from gangsched.model.gpu_policy import SliceLayer
from tests.unit.api.test_gang_spec import pod, pod_group, spec_of


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4", "is not a JSON list like"),
        ("[4]", "is not a JSON list like"),
        ('[{"size": 4}]', '"topology" is not a label key'),
        ('[{"size": 4, "topology": "no label"}]', '"topology" is not a label key'),
        ('[{"size": 0, "topology": "rack"}]', '"size" is not a number of pods from 1 on'),
        ('[{"size": true, "topology": "rack"}]', '"size" is not a number of pods from 1 on'),
        ('[{"size": 4, "topology": "rack", "count": 1}]', 'has the unknown field "count"'),
        ('[{"size": 4, "preferred": "rack"}]', 'has a "preferred" level of slices'),
        (
            '[{"size": 6, "topology": "zone"}, {"size": 4, "topology": "rack"}]',
            "slices of 4 after those of 6, which they must",
        ),
        ('[{"size": 4, "topology": "zone"}, {"size": 4, "topology": "rack"}]', "slices of 4 after those of 4"),
        ('[{"size": 4, "topology": "rack"}, {"size": 2, "topology": "rack"}]', "names the same label in two layers"),
        ("[" + ",".join(f'{{"size": {2**n}, "topology": "k{n}"}}' for n in (4, 3, 2, 1)) + "]", "lists more than 3"),
    ],
)
def test_slices_that_cannot_be_kept_as_stated_keep_the_gang_waiting(text: str, why: str) -> None:
    """I3: the sentence says what is wrong; started without them the gang would be spread over racks."""
    spec = spec_of(pod(gang_metadata={keys.SLICES[0]: text}), group=pod_group(min_member=16))
    assert spec.waiting_for is not None
    assert why in spec.waiting_for
    assert spec.waiting_for.endswith(": correct or remove it")


def test_slices_larger_than_the_gang_keep_it_waiting() -> None:
    """I3: an elastic gang states its total; one layer inside the other is read as such."""
    stated = {keys.SLICES[0]: '[{"size": 8, "topology": "zone"}, {"size": 4, "topology": "rack"}]'}
    too_large = spec_of(pod(gang_metadata=stated), group=pod_group(min_member=4))
    assert too_large.waiting_for is not None
    assert "slices of 8 pods (gangsched.dev/slices of pod ns/" in too_large.waiting_for
    assert f"are larger than gang ns/g of 4: correct them, or {keys.TOTAL[0]}" in too_large.waiting_for
    elastic = spec_of(pod(gang_metadata={**stated, keys.TOTAL[0]: "16"}), group=pod_group(min_member=4))
    assert elastic.waiting_for is None
    assert elastic.constraints.slices == (SliceLayer(8, "zone"), SliceLayer(4, "rack"))


def test_a_gang_with_slices_is_strict() -> None:
    """I3: slices are placed whole, which is told where NonStrict was stated."""
    stated = {keys.SLICES[0]: '[{"size": 2, "topology": "rack"}]', keys.MODE[0]: "NonStrict"}
    spec = spec_of(pod(gang_metadata=stated), group=pod_group(min_member=4))
    assert spec.mode is Mode.STRICT
    assert [problem.key for problem in spec.problems] == [keys.MODE[0]]
    assert "does not go with slices, which are placed whole; Strict (slices) is used instead" in spec.problems[0].text

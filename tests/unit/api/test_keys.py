"""Which labels and annotations make a gang (semantics I2, I3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api.keys import (
    GANG_ANNOTATIONS,
    GANG_LABELS,
    GROVE_CLIQUE,
    GROVE_GANG,
    IDENTITIES,
    KUEUE_NAME,
    KUEUE_TOTAL,
    LONGEST_VALUE,
    MIN,
    NAME,
    TIMEOUT,
    VALUE_KEYS,
    GangKey,
    is_timed_out,
    is_too_long,
    member_index,
    pod_group_metadata,
)
from gangsched.api.pod_metadata import pod_gang_metadata

ANY_KEY = st.sampled_from(sorted(GANG_LABELS | GANG_ANNOTATIONS | {TIMEOUT, "app"}))
TEXTS = st.dictionaries(ANY_KEY, st.sampled_from(["", "a", "b"]))


def test_plain_pod_has_no_marks() -> None:
    """I2: labels and annotations of others are nothing to us, nor is our own timeout annotation."""
    assert pod_gang_metadata({"app": "web"}, {"note": "x", TIMEOUT: "true"}) == ()


@pytest.mark.parametrize("identity", [each for each in IDENTITIES if not each.opt_in])
def test_identity_counts_only_where_its_era_put_it(identity: GangKey) -> None:
    """I2: an identity key is a label or an annotation, not either."""
    key, label = identity.key, identity.label
    beside = {GROVE_GANG: "all"} if key == GROVE_CLIQUE else {}
    assert pod_gang_metadata(beside | {key: "g"} if label else {}, {} if label else {key: "g"}) == (
        (key, "g"),
    )
    assert (
        pod_gang_metadata(beside | ({} if label else {key: "g"}), {key: "g"} if label else {}) == ()
    )


@pytest.mark.parametrize("key", sorted(VALUE_KEYS))
def test_value_counts_in_either_place_and_the_annotation_wins(key: str) -> None:
    """I3: values are annotations or labels; of two, the annotation is the one that can hold every
    value.
    """
    assert pod_gang_metadata({key: "1"}, {}) == pod_gang_metadata({}, {key: "1"}) == ((key, "1"),)
    assert pod_gang_metadata({key: "1"}, {key: "2"}) == ((key, "2"),)
    assert pod_gang_metadata({key: "1"}, {key: ""}) == ((key, "1"),)
    assert pod_gang_metadata({}, {key: ""}) == ((key, ""),)


def test_index_of_a_member() -> None:
    """I3: the first key that states a number, as label or annotation; else the number that the name
    ends in.
    """
    job, replica = "batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index"
    assert member_index({}, {job: "7"}, "g-1-x2z9k") == 7
    assert member_index({replica: "3", job: "4"}, {}, "g-1") == 4
    assert member_index({replica: "3"}, {job: "-4"}, "g-1") == 3
    assert member_index({}, {}, "worker-12") == 12
    assert member_index({}, {}, "job-x2z9k") == -1
    assert member_index({}, {}, f"worker-{'9' * 30}") == -1


def test_empty_identity_is_no_mark() -> None:
    """I2: the first non-empty name wins, so an empty one is as good as none."""
    assert pod_gang_metadata({"pod-group/name": ""}, {NAME: ""}) == ()


@given(TEXTS, TEXTS)
def test_marks_are_sorted_unique_and_ours(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """Marks are one entry a key, in order, of the keys in the table, and one object however often
    they are made.
    """
    gang_metadata = pod_gang_metadata(labels, annotations)
    names = [key for key, _ in gang_metadata]
    assert names == sorted(set(names))
    assert set(names) <= GANG_LABELS | GANG_ANNOTATIONS
    assert pod_gang_metadata(dict(reversed(labels.items())), annotations) is gang_metadata


def test_pod_group_carries_values_but_no_identity() -> None:
    """I3: a PodGroup's annotations give values; it has its own name."""
    assert pod_group_metadata({MIN[0]: "3", NAME: "other", "app": "x"}) == ((MIN[0], "3"),)


def test_timed_out_is_exactly_true() -> None:
    """P2: only the annotation we write ourselves keeps a gang back."""
    assert is_timed_out({TIMEOUT: "true"})
    assert not is_timed_out({TIMEOUT: "false"})
    assert not is_timed_out({})


def test_long_values_are_kept_only_as_far_as_shows_that_they_are_long() -> None:
    """Text of users is bounded in bytes."""
    kept = dict(pod_gang_metadata({}, {NAME: "n" * 200_000, MIN[0]: "1" * 200_000}))
    assert {key: len(value) for key, value in kept.items()} == {
        NAME: LONGEST_VALUE + 1,
        MIN[0]: LONGEST_VALUE + 1,
    }
    assert all(map(is_too_long, kept.values()))
    assert [len(value) for _, value in pod_group_metadata({MIN[0]: "1" * 200_000})] == [
        LONGEST_VALUE + 1
    ]


def test_kueues_total_is_the_minimum_of_the_gang_that_kueue_names() -> None:
    """I2: the count of a Kueue pod group says nothing about a gang of another name, or about a
    PodGroup.
    """
    total = {KUEUE_TOTAL: "3"}
    assert pod_gang_metadata({KUEUE_NAME: "g"}, total) == ((KUEUE_NAME, "g"), (KUEUE_TOTAL, "3"))
    assert pod_gang_metadata({KUEUE_NAME: "g", "pod-group/name": "h"}, total) == (
        (KUEUE_NAME, "g"),
        ("pod-group/name", "h"),
    )
    assert pod_gang_metadata({KUEUE_NAME: "g"}, {**total, NAME: ""}) == (
        (KUEUE_NAME, "g"),
        (KUEUE_TOTAL, "3"),
    )
    assert pod_group_metadata(total) == ()

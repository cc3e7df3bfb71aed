"""Which readers of dialects a pod needs (semantics I2)."""

from hypothesis import given
from hypothesis import strategies as st

from gangsched.api import keys
from gangsched.api.dialects.spec import PodMarks
from gangsched.api.pod_metadata import READ_AT, READERS, pod_gang_metadata
from gangsched.model.owners import OwnerGangs

ANY_KEY = st.sampled_from(
    sorted(
        {
            *keys.GANG_LABELS,
            *keys.GANG_ANNOTATIONS,
            *keys.LWS_GROUP,
            *keys.OF_LWS,
            keys.GROVE_GANG,
            keys.VOLCANO_TASK,
            keys.KUEUE_TOTAL,
            "app",
        }
    )
)
TEXTS = st.dictionaries(ANY_KEY, st.sampled_from(["", "a", "3"]), max_size=6)


@given(TEXTS, TEXTS, st.sampled_from(OwnerGangs))
def test_readers_change_nothing_of_a_pod_without_their_keys(
    labels: dict[str, str],
    annotations: dict[str, str],
    owner_gangs: OwnerGangs,
) -> None:
    """I2: so they are not asked of most pods."""
    labels = {key: text for key, text in labels.items() if key not in READ_AT}
    annotations = {key: text for key, text in annotations.items() if key not in READ_AT}
    found = dict(pod_gang_metadata(labels, annotations, owner_gangs=owner_gangs))
    read = dict(found)

    for read_pod in READERS:
        read_pod(read, PodMarks(labels, annotations, owner_gangs))

    assert read == found

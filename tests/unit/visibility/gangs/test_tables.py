"""Forms of an answer, and ages as kubectl words them."""

from __future__ import annotations

import pytest

from gangsched.visibility.gangs.tables import Form, age, form_of
from gangsched.visibility.statuses import RequestRefused

KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.WHOLE),
        ("*/*", Form.WHOLE),
        (KUBECTL, Form.TABLE),
        ("application/vnd.kubernetes.protobuf, application/json", Form.WHOLE),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Form.METADATA),
        ("application/json;as=Table;v=v9;g=meta.k8s.io, application/json", Form.WHOLE),
    ],
)
def test_the_first_form_that_we_have_is_taken(accept: str, form: Form) -> None:
    """As content negotiation does it."""
    assert form_of(accept) is form


def test_what_we_do_not_have_is_refused() -> None:
    """406."""
    with pytest.raises(RequestRefused) as refused:
        form_of("application/vnd.kubernetes.protobuf")
    assert refused.value.code == 406


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (130, "2m10s"),
        (3_600, "60m"),
        (3 * 3_600 + 60, "3h1m"),
        (30 * 3_600, "30h"),
        (3 * 86_400, "3d"),
        (100 * 86_400, "100d"),
        (800 * 86_400, "2y70d"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    """HumanDuration of k8s.io/apimachinery."""
    assert age("2026-01-01T00:00:00Z", 1_767_225_600 + seconds) == text

"""Paths and queries."""

from __future__ import annotations

import pytest

from gangsched.visibility.requests import PAGE, Target, list_options, target_of, token_of
from gangsched.visibility.statuses import RequestRefused

ROOT = "/apis/visibility.gangsched.dev/v1alpha1"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/gangs", Target("gangs")),
        ("/namespaces/ns/gangs", Target("gangs", "ns")),
        ("/namespaces/ns/gangs/My%20Gang%2F1%25", Target("gangs", "ns", "My Gang/1%")),
        ("/namespaces/ns/gangs/%E2%9C%93", Target("gangs", "ns", "✓")),
        ("/namespaces/ns/gangs/g/status", None),
        ("/namespaces/ns/gangs/My%2Fg/history", Target("gangs", "ns", "My/g", "history")),
        ("/namespaces/ns/gangs/g/history/x", None),
        ("/namespaces/ns/placementreviews/g/history", None),
        ("/gangs/g/history", None),
        ("/namespaces//gangs", None),
        ("/namespaces/ns/gangs/", None),
        ("/gangs/g", None),
        ("//gangs", None),
        ("/namespaces/%2E%2E%2Fkube-system/gangs", Target("gangs", "../kube-system")),
    ],
)
def test_what_a_path_names(path: str, target: Target | None) -> None:
    """Segments are decoded once and after they are cut, so a name cannot become a namespace."""
    assert target_of(ROOT + path) == target


def test_other_groups_are_not_ours() -> None:
    """Only our group and version."""
    assert target_of("/apis/apps/v1/gangs") is None
    assert target_of(ROOT + "x/gangs") is None


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"},
        {"limit": "9" * 30},
        {"limit": "٣"},
        {"resourceVersion": "x"},
        {"labelSelector": "a=b"},
        {"fieldSelector": "spec.min=1"},
        {"fieldSelector": "metadata.name!=a"},
        {"fieldSelector": "metadata.name=a,metadata.name=b"},
        {"continue": "***"},
        {"continue": "bnVsbA"},
    ],
)
def test_what_is_not_understood_is_refused(query: dict[str, str]) -> None:
    """400, and nothing is guessed."""
    with pytest.raises(RequestRefused) as refused:
        list_options(query)
    assert refused.value.code == 400


def test_pages_are_bounded_and_tokens_are_read_back() -> None:
    """A page has 500 objects at most; a token holds key and version, whatever the name."""
    assert list_options({"limit": "100000"}).limit == PAGE
    options = list_options({"continue": token_of(("ns", 'od"d ✓/name'), 7)})
    assert (options.after, options.version) == (("ns", 'od"d ✓/name'), 7)
    assert list_options({"fieldSelector": "metadata.name==a,metadata.namespace=b"}).name == "a"

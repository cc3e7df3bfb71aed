"""How many requests are let in, of all users and of each."""

from __future__ import annotations

import pytest

from gangsched.visibility.admission import USERS, Admission, Places
from gangsched.visibility.statuses import RequestRefused


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_user_is_refused_before_others_are() -> None:
    """429 with the time after which it is worth a try; another user is still let in."""
    clock = Clock()
    admission = Admission(clock)
    for _ in range(50):
        admission.admit("greedy")
    with pytest.raises(RequestRefused) as refused:
        admission.admit("greedy")
    assert (refused.value.code, refused.value.retry_after_s) == (429, 1)
    admission.admit("other")
    clock.now_s += 1.0
    for _ in range(25):
        admission.admit("greedy")


def test_all_together_are_bounded() -> None:
    """A thousand users have no more than two hundred at once and two hundred a second."""
    clock = Clock()
    admission = Admission(clock)
    let_in = 0
    for _ in range(10):
        for user in range(USERS + 10):
            try:
                admission.admit(str(user))
                let_in += 1
            except RequestRefused:
                pass
        clock.now_s += 1.0
    assert 2_000 <= let_in <= 2_200
    assert len(admission.users.known) == USERS


def test_documents_have_buckets_of_their_own() -> None:
    """Whoever spent what they have for lists still finds out what there is, and nobody asks for
    that without end.
    """
    admission = Admission(Clock())
    for _ in range(50):
        admission.admit("kubectl")
    for _ in range(60):
        admission.admit_document("kubectl")
    with pytest.raises(RequestRefused):
        admission.admit_document("kubectl")
    admission.admit_document("other")


def test_service_accounts_of_a_namespace_are_one_user() -> None:
    """Whoever may edit a namespace may make any number of them."""
    admission = Admission(Clock())
    for number in range(50):
        admission.admit(f"system:serviceaccount:team:{number}")
    with pytest.raises(RequestRefused):
        admission.admit("system:serviceaccount:team:another")
    admission.admit("system:serviceaccount:other:another")


def test_places_are_bounded_for_each_and_for_all() -> None:
    """One user takes a part, all together no more than there are; places are given back, also after
    an error.
    """
    places = Places((3, 2), "lists")
    for _ in range(10):
        with pytest.raises(KeyError), places.place("a"):
            raise KeyError
    with places.place("a"), places.place("a"):
        with pytest.raises(RequestRefused) as refused:
            places.place("a").__enter__()
        assert (refused.value.code, refused.value.retry_after_s) == (429, 1)
        with places.place("b"), pytest.raises(RequestRefused):
            places.place("c").__enter__()
        with places.place("c"):
            pass

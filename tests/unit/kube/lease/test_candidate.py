"""The candidate: when the lease may be taken, and how long it is ours, without any I/O."""

from __future__ import annotations

from dataclasses import replace

from gangsched.kube.lease.candidate import Candidate, Timing
from gangsched.kube.lease.record import Record

TIMING = Timing(duration_s=15.0, renew_s=10.0, retry_s=2.0)
NEVER = float("-inf")


def theirs(renewed: str = "t0", **more: object) -> Record:
    record = Record(
        holder="b", duration_s=15.0, acquired="t0", renewed=renewed, rest={"metadata": {}}
    )
    return replace(record, **more)  # type: ignore[arg-type]


def candidate(identity: str = "a") -> Candidate:
    return Candidate(identity, TIMING)


def take(one: Candidate, now_s: float, moment: str, answered_s: float | None = None) -> Record:
    """Write what it proposes, successfully."""
    record = one.proposal(now_s, moment)
    assert record is not None
    one.sends(record, now_s)
    stored = replace(record, rest={"metadata": {"resourceVersion": moment}})
    one.stored(stored, now_s, now_s if answered_s is None else answered_s)
    return stored


UNHELD = Record(
    holder="", duration_s=15.0, acquired="", renewed="", rest={"metadata": {"resourceVersion": "1"}}
)
"""As the manifests bring it."""


def leader(now_s: float, moment: str, answered_s: float | None = None) -> tuple[Candidate, Record]:
    """One that took the Lease of the manifests."""
    one = candidate()
    one.saw(UNHELD, now_s)
    return one, take(one, now_s, moment, answered_s)


def test_a_lease_without_a_holder_is_taken_at_once() -> None:
    """It is held from when the write was sent."""
    one, record = leader(100.0, "m", answered_s=103.0)
    assert (record.holder, record.transitions) == ("a", 1)
    assert one.leads(109.9)
    assert not one.leads(110.0)
    assert one.may_write_until_s() == 112.5


def test_a_lease_that_is_not_there_is_made_at_once_and_led_by_a_lease_later() -> None:
    """Somebody may have deleted that of a holder who still writes."""
    one = candidate()
    one.saw(None, 100.0)
    assert take(one, 100.0, "m0", answered_s=103.0).transitions == 0
    assert one.holds(103.0)
    for number in range(1, 8):
        take(one, 101.0 + 2 * number, f"m{number}")
    assert not one.leads(117.9)
    assert one.leads(118.0)


def test_what_is_not_led_yet_is_not_released() -> None:
    """Others would take a released Lease at once, and the holder of the deleted one may still
    write.
    """
    one = candidate()
    one.saw(None, 100.0)
    take(one, 100.0, "m")
    assert one.resigns(101.0, "r") is None


def test_a_lease_made_twice_is_waited_for_twice() -> None:
    """It was deleted again before we led: somebody else may have held it between."""
    one = candidate()
    one.saw(None, 100.0)
    take(one, 100.0, "m")
    one.saw(None, 109.0)
    take(one, 109.0, "n")
    assert not one.leads(116.0)


def test_a_held_lease_is_left_alone_until_it_was_silent_for_its_duration() -> None:
    """It counts from when we saw it change, whatever the holder's clock says."""
    one = candidate()
    one.saw(theirs("2099-01-01"), 100.0)
    assert one.proposal(114.9, "m") is None
    one.saw(theirs("1970-01-01"), 114.9)
    assert one.proposal(129.8, "m") is None
    one.saw(theirs("1970-01-01", rest={"metadata": {"resourceVersion": "9", "labels": {}}}), 129.8)
    found = one.proposal(129.9, "m")  # a label is no sign of life
    assert found is not None
    assert (found.holder, found.transitions) == ("a", 1)
    assert found.rest["metadata"]["resourceVersion"] == "9"


def test_the_longer_of_both_durations_counts() -> None:
    """During an upgrade that changes the duration, neither takes the lease from the other too
    early.
    """
    one = candidate()
    one.saw(theirs(duration_s=40.0), 100.0)
    assert one.free_s() == 140.0
    one.saw(theirs(duration_s=3.0), 200.0)
    assert one.free_s() == 215.0


def test_a_released_lease_is_taken_at_once() -> None:
    """Nobody waits for one who has gone."""
    one = candidate()
    one.saw(theirs(), 100.0)
    one.saw(theirs(holder="", duration_s=1.0, transitions=4), 101.0)
    record = take(one, 101.0, "m")
    assert (record.holder, record.transitions) == ("a", 5)


def test_a_deleted_lease_is_no_released_one() -> None:
    """Its holder goes on for a while: who has seen it waits as long as if it were there."""
    one = candidate()
    one.saw(theirs(), 100.0)
    one.saw(None, 101.0)
    assert one.holder() == ""
    assert one.proposal(114.9, "m") is None
    found = one.proposal(115.0, "m")
    assert found is not None
    assert found.rest == {}


def test_a_holder_makes_a_deleted_lease_again() -> None:
    """It leads on by its own clock, and writes a new object."""
    one, _ = leader(100.0, "m")
    one.saw(None, 102.0)
    found = one.proposal(102.0, "n")
    assert found is not None
    assert (found.rest, found.acquired, found.renewed) == ({}, "m", "n")
    take(one, 102.0, "n", answered_s=103.0)
    assert one.leads(103.0)


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    """A slow answer makes no longer hold."""
    one, _ = leader(100.0, "m")
    take(one, 102.0, "n", answered_s=109.0)
    assert one.gives_up_s() == 112.0


def test_a_lost_answer_is_found_by_reading() -> None:
    """The object shows our own write: it stands, and counts from when it was sent."""
    one, first = leader(100.0, "m")
    lost = one.proposal(102.0, "n")
    assert lost is not None
    one.sends(lost, 102.0)
    one.saw(replace(lost, rest={"metadata": {"resourceVersion": "2"}}), 105.0)
    assert one.gives_up_s() == 112.0
    one.saw(first, 106.0)  # an older state of the object makes no shorter hold
    assert one.gives_up_s() == 112.0


def test_our_own_late_write_is_no_hold() -> None:
    """A write that was carried out after its time is ours to renew at once, and no permission to
    write before that.
    """
    one = candidate()
    one.saw(UNHELD, 100.0)
    late = one.proposal(100.0, "m")
    assert late is not None
    one.sends(late, 100.0)
    one.saw(replace(late, rest={"metadata": {}}), 130.0)
    assert not one.leads(130.0)
    take(one, 130.0, "n")
    assert one.leads(130.0)
    assert one.gives_up_s() == 140.0


def test_a_late_creation_leads_a_lease_after_it_was_seen() -> None:
    """A creation of ours that lands after the holder's Lease was deleted: the holder may write for
    some time yet.
    """
    one = candidate()
    one.saw(None, 100.0)
    creation = one.proposal(100.0, "m")
    assert creation is not None
    one.sends(creation, 100.0)
    one.saw(theirs(), 101.0)
    one.saw(None, 120.0)
    one.saw(replace(creation, rest={"metadata": {"resourceVersion": "9"}}), 121.0)
    assert one.proposal(135.9, "n") is None
    take(one, 136.0, "n")
    assert one.leads(136.0)


def test_another_holder_ends_ours_at_once() -> None:
    """Whatever our clock says."""
    one, _ = leader(100.0, "m")
    one.saw(theirs(), 101.0)
    assert not one.holds(101.0)
    assert one.may_write_until_s() == NEVER


def test_two_processes_with_one_identity_are_two() -> None:
    """A record with our name that we did not write is somebody else's."""
    one = candidate()
    one.saw(theirs(holder="a"), 100.0)
    assert one.proposal(114.0, "m") is None
    assert not one.holds(100.0)


def test_only_a_holder_releases() -> None:
    """What was lost, or never held, is not written to."""
    one = candidate()
    one.saw(theirs(), 100.0)
    assert one.resigns(100.0, "r") is None
    take(one, 120.0, "m")
    given = one.resigns(120.0, "r")
    assert given is not None
    assert (given.holder, given.duration_s) == ("", 1)
    assert not one.holds(120.0)
    assert one.resigns(120.0, "r") is None


def test_what_was_lost_by_silence_is_taken_again_at_once() -> None:
    """After an outage the last record is still ours: nobody else can have held the lease since."""
    one, last = leader(100.0, "m")
    one.loses()
    one.saw(last, 200.0)
    assert not one.holds(200.0)
    again = take(one, 200.0, "n")
    assert (again.acquired, again.transitions) == ("n", 1)


def test_a_stored_object_that_is_not_what_was_sent_is_not_ours() -> None:
    """A webhook that changes what we write does not make us a holder."""
    one = candidate()
    one.saw(None, 100.0)
    record = one.proposal(100.0, "m")
    assert record is not None
    one.sends(record, 100.0)
    one.stored(replace(record, holder="x"), 100.0, 100.0)
    assert not one.holds(100.0)

"""The candidate: what one process knows about the Lease, and what it may write (client-go's
`leaderelection`).

Invariant: times are seconds of one monotonic clock, and every time is an argument. Clocks of other
processes are not used: a record is valid from the moment when this process saw it change. This
process's own lease is valid from the moment when its write was *sent*, so it expires here before it
expires for any other process. Sending and waiting are left to `elector`.

At most one candidate writes at a time, for this reason: a holder stops `Timing.fence_s` after it
sent its last successful write. Other candidates wait for `duration_s` after they saw that write,
which is later than it was sent, and their own write is refused if the object has changed since.
Clock speeds may differ by the ratio of `margin_s` to `duration_s`.

Two rules are stricter than in client-go. First, a missing Lease does not count as released, because
it may have been deleted while its holder still writes. So a process that creates the Lease holds
and renews it at once, but leads only `duration_s` after it has seen the Lease stored, unless it was
the holder all along. Second, a record with this process's identity counts as this process's own
only if this process wrote it, because two processes may have the same identity.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from gangsched.kube.lease.record import MOST_TRANSITIONS, NOBODY, Record

# Answers may be lost for as long as a request lives; at one write every 2 s these are the last 200
# s.
WRITES_REMEMBERED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """`duration_s` > `renew_s` > `retry_s`, as client-go's LeaseDuration, RenewDeadline and
    RetryPeriod.
    """

    duration_s: float
    renew_s: float
    retry_s: float

    @classmethod
    def of_lease(cls, duration_s: float) -> Timing:
        """Times for a Lease, in the proportions of client-go's defaults (15, 10 and 2 s).

        There is time for more than one renewal, and the deadline of the last renewal passes before
        other candidates try.
        """
        return cls(duration_s=duration_s, renew_s=duration_s * 2 / 3, retry_s=duration_s * 2 / 15)

    @property
    def margin_s(self) -> float:
        """Margin for requests in flight and for clocks of different speed."""
        return (self.duration_s - self.renew_s) / 2

    @property
    def fence_s(self) -> float:
        """For how many seconds after a renewal was sent other writes may be sent."""
        return self.duration_s - self.margin_s


@dataclass(frozen=True, slots=True)
class _Write:
    """When it was sent, and whether it made a new object."""

    sent_s: float
    creates: bool


class Candidate:
    """One candidate, which at first knows nothing: call `saw` before `proposal`."""

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity = identity
        self.timing = timing
        self._record: Record | None = None  # as last seen or written
        self._is_absent = False
        self._changed_s = float("-inf")
        self._held_s: float | None = None
        self._leads_from_s = float("-inf")
        self._writes: OrderedDict[tuple[str, str], _Write] = OrderedDict()

    # --- what it knows ---------------------------------------------------------------------------

    def may_write_until_s(self) -> float:
        """Deadline of all other writes."""
        if self._held_s is None:
            return float("-inf")

        return self._held_s + self.timing.fence_s

    def gives_up_s(self) -> float:
        """Time at which it gives up the Lease unless a renewal succeeds before."""
        if self._held_s is None:
            return float("-inf")

        return self._held_s + self.timing.renew_s

    def holds(self, now_s: float) -> bool:
        """Whether it holds the Lease, and therefore renews it."""
        return now_s < self.gives_up_s()

    def leads(self, now_s: float) -> bool:
        """Whether it holds the Lease and no earlier holder can still write."""
        return self._leads_from_s <= now_s < self.gives_up_s()

    def holder(self) -> str:
        """Holder of the Lease when it was last seen."""
        if self._record is not None and not self._is_absent:
            return self._record.holder

        return NOBODY

    def record(self) -> Record | None:
        """The Lease as it was last seen; None if there is none."""
        return None if self._is_absent else self._record

    def free_s(self) -> float:
        """Time at which it may lead if nothing changes; -inf if the Lease was released."""
        record = self._record
        if record is None or record.is_free:
            return float("-inf")
        if self._is_ours(record):
            return self._leads_from_s

        # The longer of both: a holder with a longer duration than ours may still write.
        return self._changed_s + max(record.duration_s, self.timing.duration_s)

    # --- what happens to it ----------------------------------------------------------------------

    def saw(self, record: Record | None, now_s: float) -> None:
        """Record the current Lease object; None if there is none."""
        self._is_absent = record is None
        if record is None:
            return

        if record != self._record:
            self._changed_s = now_s
            if (
                self._is_ours(record)
                and self._writes[_stamp(record)].creates
                and not self.leads(now_s)
            ):
                # The Lease that we made may replace a deleted one, whose holder writes until its
                # own duration is over.
                self._leads_from_s = now_s + self.timing.duration_s

        self._record = record
        if self._is_ours(record):  # perhaps a write whose answer was lost
            # When it was sent, not now: the holder's time runs from there, so ours never exceeds
            # what others grant us.
            sent_s = self._writes[_stamp(record)].sent_s
            self._held_s = sent_s if self._held_s is None else max(self._held_s, sent_s)
        else:
            self._held_s = None
            self._leads_from_s = float("-inf")
            self._writes.clear()  # whichever of them lands or is answered later counts no more

    def proposal(self, now_s: float, moment: str) -> Record | None:
        """The Lease to write now; None while another process may hold it. `moment` is the current
        time as a MicroTime.
        """
        holds = self.holds(now_s)
        known = self._record

        is_anothers = known is not None and not self._is_ours(known)
        # `free_s` is -inf for a released Lease, so it is taken at once.
        if is_anothers and now_s < self.free_s():
            return None

        wanted = Record(
            holder=self.identity,
            duration_s=self.timing.duration_s,
            acquired=moment,
            renewed=moment,
            transitions=0,
        )
        if known is None:
            return wanted

        if holds:
            # acquireTime stays through renewals, as in client-go.
            wanted = replace(wanted, acquired=known.acquired)

        changed = known.holder != self.identity
        # leaseTransitions is an int32 in the API.
        transitions = min(known.transitions + changed, MOST_TRANSITIONS)
        # Without `rest` the record is created (POST); with it, its resourceVersion guards the
        # update.
        return replace(wanted, transitions=transitions, rest={} if self._is_absent else known.rest)

    def sends(self, record: Record, now_s: float) -> None:
        """Record that a proposal is about to be sent."""
        # setdefault: the same record sent again is valid only from the first time on.
        self._writes.setdefault(_stamp(record), _Write(now_s, creates=not record.rest))
        if len(self._writes) > WRITES_REMEMBERED:
            self._writes.popitem(last=False)

    def stored(self, record: Record, sent_s: float, now_s: float) -> None:
        """Record the answer to a write that was sent at `sent_s`: the object as stored."""
        self.saw(record, now_s)
        if self._is_ours(record):
            self._held_s = sent_s

    def resigns(self, now_s: float, moment: str) -> Record | None:
        """Stop holding the Lease; return the object to write so that other candidates need not
        wait, None if it did not lead.
        """
        held = self._held_s
        self._held_s = None

        known = self._record
        if (
            held is None
            or known is None
            or self._is_absent
            or not self._is_ours(known)
            or now_s < self._leads_from_s
        ):
            return None

        # A duration of 1 s as in client-go: the API requires a positive one.
        return replace(known, holder=NOBODY, duration_s=1, acquired=moment, renewed=moment)

    def loses(self) -> None:
        """Stop holding the Lease without releasing it."""
        self._held_s = None

    def _is_ours(self, record: Record) -> bool:
        return record.holder == self.identity and _stamp(record) in self._writes


def _stamp(record: Record) -> tuple[str, str]:
    return record.acquired, record.renewed

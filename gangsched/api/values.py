"""Grammars of annotation values: counts, Go durations, lists of gangs (semantics I3).

Invariant: each function returns the value of a text, or raises `BadValue`. `gang_spec` chooses the
replacement of a bad value.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gangsched.api.problem import quoted
from gangsched.model.gang import Disruption, MatchPolicy, Mode

INT32_MAX: Final = 2**31 - 1
MOST_GANGS: Final = 32
"""Gangs in a group: each has to be compared with each."""

MOST_STRIKES: Final = 10
"""Deaths of members on a node after which a gang avoids it, at most."""

MAX_LEVELS: Final = 4
"""Levels of each of which one domain must hold a gang."""

_COUNT: Final = re.compile(r"\+?0*([0-9]{1,10})")
_DURATION: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+")
_DURATION_TERM: Final = re.compile(r"([0-9]*)\.?([0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, the micro sign
    "μs": 10**3,  # U+03BC, the Greek letter
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LONGEST_DURATION: Final = 128
LABEL_KEY: Final = re.compile(
    r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_GANG_ID: Final = re.compile(r"[^/\s]+/[^/\s]+")


class BadValue(ValueError):  # noqa: N818  # it is a finding about a user's text, not an error of ours
    """A text outside its grammar. The message completes the sentence "the value …"."""


def parse_count(text: str) -> int:
    """Parse a number of pods, 0 to 2^31-1."""
    match = _COUNT.fullmatch(text)
    if match is None or (count := int(match[1])) > INT32_MAX:
        raise BadValue(f"is not an integer from 0 to {INT32_MAX}")

    return count


def parse_duration(text: str) -> float:
    """Parse a Go duration into seconds ("30s", "1h30m", "1.5h", "100ms"; "0" needs no unit); it may
    be negative.
    """
    # As Go's ParseDuration: the only number without a unit.
    if text.lstrip("+-") == "0" and len(text) <= 2:
        return 0.0
    if len(text) > _LONGEST_DURATION or not _DURATION.fullmatch(text):
        raise BadValue('is not a duration (examples: "30s", "1h30m")')

    total_ns = 0
    for integer, fraction, unit in _DURATION_TERM.findall(text):
        # Whole nanoseconds, so that 0.1s is exactly that.
        total_ns += int(integer + fraction) * _UNIT_NS[unit] // int(10 ** len(fraction))

    if total_ns >= 2**63:
        raise BadValue("is longer than the maximum, 292 years")

    return (-total_ns if text.startswith("-") else total_ns) / 10**9


def parse_wait_time(text: str) -> float | None:
    """Parse a wait time into seconds; None for zero, which counts as absent."""
    seconds = parse_duration(text)
    if seconds < 0:
        raise BadValue("is negative")

    return seconds or None


def parse_delay(text: str) -> float:
    """Parse a delay into seconds; 0 means no delay."""
    seconds = parse_duration(text)
    if seconds < 0:
        raise BadValue("is negative")

    return seconds


def parse_groups(text: str) -> tuple[str, ...] | None:
    """Parse a JSON list of gang ids "namespace/name" into sorted, distinct ids; None for an empty
    list or text.

    Koordinator sets the key to an empty text on PodGroups without a gang group.
    """
    if not text.strip():
        return None

    try:
        ids = msgspec.json.decode(text, type=list[str])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadValue('is not a JSON list of "namespace/name"') from None

    for gang in ids:
        if not _GANG_ID.fullmatch(gang):
            raise BadValue(f'is not a JSON list of "namespace/name" (it lists {quoted(gang)})')

    listed = tuple(sorted(set(ids)))
    if len(listed) > MOST_GANGS:
        raise BadValue(f"lists more than {MOST_GANGS} gangs")

    return listed or None


def parse_parent(text: str) -> str | None:
    """Parse the name of a parent in the gang's namespace; None for an empty text."""
    return _optional(text, _NAME, "the name of an object")


def parse_mode(text: str) -> Mode:
    """Parse a mode: Strict or NonStrict, in exactly this spelling."""
    try:
        return Mode(text)
    except ValueError:
        raise BadValue(f"is neither {Mode.STRICT} nor {Mode.NON_STRICT}") from None


def parse_disruption(text: str) -> Disruption:
    """Parse a unit of eviction: all or single, in exactly this spelling."""
    try:
        return Disruption(text)
    except ValueError:
        raise BadValue(f"is neither {Disruption.ALL} nor {Disruption.SINGLE}") from None


def parse_match_policy(text: str) -> MatchPolicy:
    """Parse a match policy in its exact spelling."""
    try:
        return MatchPolicy(text)
    except ValueError:
        raise BadValue(f"is none of {', '.join(MatchPolicy)}") from None


def parse_flag(text: str) -> bool:
    """Parse true or false."""
    if text not in {"true", "false"}:
        raise BadValue("is neither true nor false")

    return text == "true"


def parse_strikes(text: str) -> int:
    """Parse a number of strikes, 1 to `MOST_STRIKES`."""
    try:
        count = parse_count(text)
    except BadValue:
        count = 0

    if not 1 <= count <= MOST_STRIKES:
        raise BadValue(f"is not an integer from 1 to {MOST_STRIKES}")

    return count


def parse_class(text: str) -> str:
    """Parse the name of a class of ProvisioningRequests, or `none`."""
    if not _NAME.fullmatch(text):
        raise BadValue("is not a name of lower-case letters, digits, dots and dashes")

    return text


def parse_gpu_product(text: str) -> bool:
    """Parse a policy for GPU products: True for same (all members get the same product), False for
    any.
    """
    if text not in {"same", "any"}:
        raise BadValue("is neither same nor any")

    return text == "same"


def parse_topology(text: str) -> tuple[str, ...] | None:
    """Parse the node labels of the required levels and sort them; None for an empty text."""
    labels = tuple(sorted({key.strip() for key in text.split(",")})) if text.strip() else ()
    if not all(map(LABEL_KEY.fullmatch, labels)):
        raise BadValue("is not a label key" if len(labels) == 1 else "is not a list of label keys")
    if len(labels) > MAX_LEVELS:
        raise BadValue(f"lists more than {MAX_LEVELS} labels")

    return labels or None


def parse_level(text: str) -> str | None:
    """Parse the key of a node label (a topology level); None for an empty text. Raises BadValue."""
    return _optional(text, LABEL_KEY, "a label key")


def _optional(
    text: str,
    pattern: re.Pattern[str],
    what: str,
) -> str | None:
    if text and not pattern.fullmatch(text):
        raise BadValue(f"is not {what}")

    return text or None

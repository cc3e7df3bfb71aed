"""Orders in annotations of the Lease: any value can be read, and each change is one sentence."""

from __future__ import annotations

from gangsched.api.admin_orders import LONGEST_REASON, changes, misread, read_orders
from gangsched.model.orders import NO_ORDERS, Orders


def test_values_of_any_kind_are_read() -> None:
    """A reason is cut; `false`, an empty text and what is no text are no order."""
    assert read_orders({}) == NO_ORDERS
    assert read_orders({"gangsched.dev/pause": "false", "gangsched.dev/set-aside": 7}) == NO_ORDERS
    assert read_orders({"gangsched.dev/pause": " a\nb "}).paused == "a b"
    assert (
        len(read_orders({"gangsched.dev/pause-preemption": "x" * 999}).no_preemption)
        == LONGEST_REASON
    )
    found = read_orders(
        {"gangsched.dev/set-aside": "ml/a, ml/b", "gangsched.dev/no-reservation": "ml/c"}
    )
    assert found == Orders(set_aside=frozenset({"ml/a", "ml/b"}), unreserved=frozenset({"ml/c"}))


def test_each_change_is_reported() -> None:
    """What is given and what is withdrawn; what stays is not repeated."""
    before = Orders(paused="INC-1", set_aside=frozenset({"ml/a", "ml/b"}))
    now = Orders(
        no_preemption="INC-2", set_aside=frozenset({"ml/b"}), unreserved=frozenset({"ml/c"})
    )
    assert changes(before, before) == []
    assert changes(before, now) == [
        "Scheduling is resumed.",
        "Preemption is paused: INC-2 (gangsched.dev/pause-preemption).",
        "Gang ml/a is no longer set aside.",
        "No capacity is reserved for gang ml/c (gangsched.dev/no-reservation).",
    ]
    assert changes(now, NO_ORDERS)[-1] == "Capacity may be reserved for gang ml/c again."


def test_what_is_no_order_is_told() -> None:
    """A misspelt order at night is not taken for one that is obeyed."""
    assert misread({"gangsched.dev/pause": "x", "gangsched.dev/set-aside": "ml/a", "a": "b"}) == []
    assert misread({"gangsched.dev/pauze": "x", "gangsched.dev/q": "x"}) == [
        "Annotation gangsched.dev/pauze is no order; did you mean gangsched.dev/pause?",
        "Annotation gangsched.dev/q is no order.",
    ]
    assert misread(
        {"gangsched.dev/set-aside": "a, ml/b", "gangsched.dev/no-reservation": "a/b/c"}
    ) == [
        '"a" (gangsched.dev/set-aside) is not the id of a gang: it is NAMESPACE/NAME.',
        '"a/b/c" (gangsched.dev/no-reservation) is not the id of a gang: it is NAMESPACE/NAME.',
    ]

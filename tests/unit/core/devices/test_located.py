"""Requests of a pod's claims without names."""

from __future__ import annotations

from gangsched.core.devices.located import DeviceKind
from gangsched.model.devices import DeviceClaim


def test_each_claim_of_many_gets_its_own_name() -> None:
    """The placeholder of claim 1 is the beginning of that of claim 10."""
    kind = DeviceKind(tuple(DeviceClaim(name=f"#{number}") for number in range(11)))
    names = [f"ns/c{number}" for number in range(11)]
    text = "claim /#1, request r: claim /#10 has no devices"
    assert kind.named(text, names) == "claim ns/c1, request r: claim ns/c10 has no devices"

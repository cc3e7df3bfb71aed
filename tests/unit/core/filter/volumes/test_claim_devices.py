"""Extended resources that devices serve: why a gang does not start."""

from __future__ import annotations

import msgspec
import pytest

from gangsched.model.devices import Device
from gangsched.model.protocol import Applied
from gangsched.sentences import say
from tests.builders import gang_metadata, node, pod
from tests.unit.state.test_served import devices_of, gang_of, network, wanting, world_of


@pytest.mark.parametrize("is_joint", [False, True])
def test_a_node_that_is_not_searched_has_the_reason_of_its_pools(is_joint: bool) -> None:
    """Where not even the number of devices suffices, kube-scheduler still says that a pool
    contradicts itself.
    """
    bad = Device(name="x", counters=((("missing", "memory"), 1),))
    pool = msgspec.structs.replace(
        network("") if is_joint else devices_of("n0", ""), devices=(bad,)
    )
    world = world_of([node("n0", gpus=0), node("n1", gpus=0)], [pool, devices_of("n1", "a")])
    world.create(gang_of(wanting(5)))
    world.settle()
    said = say(world.verdict("ns/g").told).text
    assert ("2" if is_joint else "1") + " invalid resource pools were encountered" in said
    assert ("1 cannot allocate all claims" in said) is not is_joint
    world.say(Applied(msgspec.structs.replace(pool, devices=devices_of("", "aa").devices)))
    world.create(
        [pod("late", uid="late", of=wanting(5), gang_metadata=gang_metadata("late", min_member=1))]
    )
    world.settle()
    assert "2 cannot allocate all claims." in say(world.verdict("ns/late").told).text

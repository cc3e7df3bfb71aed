"""The GPU policy: settings of administrators and gangs about accelerators and topology.

Invariant: values only; `core.scopes` and `core.score` apply them. By default, gangs are packed, and
placed in one domain if they fit there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gangsched.model import resources

PRODUCT_LABEL = "nvidia.com/gpu.product"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
NOT_SHARED = frozenset({"", "none"})
"""Values of `SHARING_LABEL` on nodes that give each GPU to one pod only (NVIDIA GPU feature
discovery).
"""
SHARED_SUFFIX = "-SHARED"
"""The suffix of `PRODUCT_LABEL` on nodes that share their GPUs; older feature discovery has no
other sign.
"""
TOPOLOGY_KEYS = (
    "nvidia.com/gpu.clique",
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/zone",
)


class PlainReplicas(StrEnum):
    """The setting `plain_replicas`: whether plain replicas without accelerators are spread or
    packed.
    """

    SPREAD = "spread"
    PACK = "pack"


class HealPreference(StrEnum):
    """The setting `heal_prefers`: where a lost member is replaced if its home is only preferred and
    has no free room: on a free node further away (`ROOM`), or at home, where pods are evicted or
    room is reserved (`HOME`).
    """

    ROOM = "room"
    HOME = "home"


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """The administrator's settings.

    `topology_keys` are node labels, smallest domains first. `accelerators` are resources that count
    as accelerators in addition to the built-in ones (`model.resources.is_accelerator`). `replicas`
    applies to pods without accelerators.
    """

    topology_keys: tuple[str, ...] = TOPOLOGY_KEYS
    accelerators: frozenset[str] = frozenset()
    replicas: PlainReplicas = PlainReplicas.SPREAD
    heals_at: HealPreference = HealPreference.ROOM
    #: Autoscalers add nodes to the domain in which a gang waits (L6).
    home_can_grow: bool = False

    def is_accelerator(self, name: str) -> bool:
        """Whether `name` is an accelerator resource."""
        # The setting only adds: a built-in accelerator that were none would let its nodes fill up
        # with other pods.
        return name in self.accelerators or resources.is_accelerator(name)


class SliceLayer(NamedTuple):
    """A layer of slices: every `size` consecutive members run in one domain of the node label
    `topology`.
    """

    size: int
    topology: str


@dataclass(frozen=True, slots=True)
class PlacementConstraints:
    """Constraints of a gang in addition to its pods' specs.

    `allow_shared`: members may use GPUs that pods share. `same_product`: all members with
    accelerators get the same GPU product. `topology`: for each of these node labels, all members
    are in one domain. `preferred`: all members are in one domain of this label if they fit; "" for
    none. `slices` are layers, coarsest first; each size divides the size of the layer before it.
    """

    allow_shared: bool = False
    same_product: bool = False
    topology: tuple[str, ...] = ()
    preferred: str = ""
    slices: tuple[SliceLayer, ...] = ()


NO_CONSTRAINTS = PlacementConstraints()

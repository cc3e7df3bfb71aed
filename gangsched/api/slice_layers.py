"""The grammar of slices: layers, each with a number of consecutive members that must run in one
domain (semantics I3).

Invariant: a text is parsed into a list of layers, in which each size divides the previous one, or
`BadValue` is raised. Whether a gang has enough members for its slices is checked in `gang_spec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from gangsched.api.problem import quoted
from gangsched.api.values import INT32_MAX, LABEL_KEY, BadValue
from gangsched.model.gpu_policy import SliceLayer

MAX_SLICE_LAYERS: Final = 3
"""Layers of slices, each inside those of the one before."""


def parse_slices(text: str) -> tuple[SliceLayer, ...] | None:
    """Parse the layers of a JSON list of {"size": 4, "topology": "a label"}, coarsest first. None
    for an empty list or text.

    Each size must divide the previous one, so that no small slice belongs to two large ones.
    """
    if not text.strip():
        return None

    try:
        stated = msgspec.json.decode(text)
    # RecursionError: ten thousand opening brackets fit into an annotation.
    except (msgspec.MsgspecError, ValueError, RecursionError):
        stated = None

    if not isinstance(stated, list) or not all(isinstance(candidate, dict) for candidate in stated):
        raise BadValue(
            'is not a JSON list like [{"size": 4, "topology": "topology.kubernetes.io/rack"}]'
        )
    if len(stated) > MAX_SLICE_LAYERS:
        raise BadValue(f"lists more than {MAX_SLICE_LAYERS} layers of slices")

    layers = tuple(map(_slice_layer, stated))
    for outer, inner in pairwise(layers):
        if outer.size % inner.size or outer.size == inner.size:
            raise BadValue(
                f"has slices of {inner.size} inside slices of {outer.size}, whose size must be a"
                " larger multiple"
            )

    if len({layer.topology for layer in layers}) < len(layers):
        raise BadValue("names the same label in two layers")

    return layers or None


def _slice_layer(stated: Mapping[str, object]) -> SliceLayer:
    if "preferred" in stated:
        raise BadValue(
            'has a "preferred" level of slices, which gangsched does not support: set "topology"'
            " instead"
        )
    if unknown := sorted(stated.keys() - {"size", "topology"}):
        raise BadValue(f"has the unknown field {quoted(unknown[0])}")

    size = stated.get("size")
    topology = stated.get("topology")

    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= INT32_MAX:
        raise BadValue('has a layer whose "size" is not a positive number of pods')
    if not isinstance(topology, str) or not LABEL_KEY.fullmatch(topology):
        raise BadValue('has a layer whose "topology" is not a label key')

    return SliceLayer(size, topology)


def format_slices(layers: Iterable[SliceLayer]) -> str:
    """The slices as text: `16, each in one domain of zone, and of 4, each in one domain
    of rack`.
    """
    return ", and of ".join(
        f"{layer.size}, each in one domain of {layer.topology}" for layer in layers
    )

"""Extended resources that device classes serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangsched.model.devices import CLASS_PREFIX, DeviceClass


def served_by(classes: Iterable[DeviceClass]) -> Mapping[str, str]:
    """By extended resource, the name of the class that serves it; if several do, the newest class,
    then the first by name.
    """
    found: dict[str, str] = {}
    for each in sorted(classes, key=lambda each: (-each.creation_s, each.name)):
        if each.extended_resource:
            found.setdefault(each.extended_resource, each.name)

        # Every class also serves the implicit resource of its name (KEP-5004).
        found[CLASS_PREFIX + each.name] = each.name

    return found

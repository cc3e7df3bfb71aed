"""Extended resources that device classes serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangsched.model.devices import CLASS_PREFIX, DeviceClass


def served_by(classes: Iterable[DeviceClass]) -> Mapping[str, str]:
    """By extended resource, the name of the class that serves it; if several do, the newest class,
    then the first by name.
    """
    class_of: dict[str, str] = {}
    for device_class in sorted(
        classes, key=lambda device_class: (-device_class.creation_s, device_class.name)
    ):
        if device_class.extended_resource:
            class_of.setdefault(device_class.extended_resource, device_class.name)

        # Every class also serves the implicit resource of its name (KEP-5004).
        class_of[CLASS_PREFIX + device_class.name] = device_class.name

    return class_of

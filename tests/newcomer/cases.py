"""All cases, by slug."""

from __future__ import annotations

from tests.newcomer import declarations, losses, rights, room, volumes

CASES = {
    case.slug: case
    for module in (declarations, room, volumes, losses, rights)
    for case in module.CASES
}

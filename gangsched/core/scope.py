"""The part of the cluster that one attempt to place a group keeps to."""

from __future__ import annotations

from dataclasses import dataclass

from gangsched.model.snapshot import Bools


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The nodes one attempt keeps to, None for all: for pods with accelerators, and for the `others`.

    `text` is said of the nodes outside. With `whole`, an attempt counts only if no member is left out; in the `last`
    one, whatever comes of it counts (`core.search`). `name` is the same in the next plan. A `refuted` scope is known to
    be too small; `note` says what it and the others lack.
    """

    accelerated: Bools | None = None
    others: Bools | None = None
    text: str = ""
    whole: bool = False
    last: bool = False
    name: str = ""
    note: str = ""
    refuted: bool = False

    def of(self, *, accelerated: bool) -> Bools | None:
        """The nodes for pods with accelerators, or for others."""
        return self.accelerated if accelerated else self.others


EVERYWHERE = Scope(last=True)

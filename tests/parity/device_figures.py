"""What a comparison of single pods with devices found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """What was compared, of which `joint` had pools of several nodes. `refused` cases were not
    accepted by the API server, `unsupported` ones not by gangsched; of `silent` ones kube-scheduler
    said nothing, `elsewhere` it named a pool of another node, and `unmapped` it did not bind, since
    1.36 fails for pods with claims whose extended resources are all offered by the node.
    `recharged` ones it did not bind since 1.36, unlike 1.37, takes counters again for a further
    share of a device of which a claim has a share without capacity.
    """

    compared: int = 0
    joint: int = 0
    bound: int = 0
    refused: int = 0
    unsupported: int = 0
    silent: int = 0
    elsewhere: int = 0
    unmapped: int = 0
    recharged: int = 0
    said: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"  {number:5}  {text}" for text, number in self.said.most_common()]
        return "\n".join(
            (
                (
                    f"{self.compared} compared, {self.joint} with pools of several nodes,"
                    f" {self.bound} bound by both, {len(self.differences)} differ; {self.refused}"
                    f" refused by the API server, {self.unsupported} by gangsched as unsupported,"
                    f" {self.silent} of which kube-scheduler said nothing, {self.elsewhere} because"
                    f" of a pool elsewhere, {self.unmapped} that it failed to bind,"
                    f" {self.recharged} whose counters it took twice"
                ),
                *rows,
            )
        )

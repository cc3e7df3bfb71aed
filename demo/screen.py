"""The output: narration line by line, and on a terminal a live view of nodes and gangs below it.

Invariant: the view is drawn from the last watch events, never from what the demo expects. Without a
terminal, the narration is plain lines and there is no view.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from control_plane.api import Object
from control_plane.checks import gang_of
from control_plane.following import Following
from control_plane.objects import GPU, GPU_PRODUCT
from control_plane.pods import refusal
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

COLOURS = (
    "cyan",
    "green",
    "magenta",
    "yellow",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
    "bright_magenta",
)
PICTURES_PER_SECOND = 8
#: At which people read plain text.
WORDS_PER_SECOND = 4.0


class Screen:
    """The narration. `follow` adds the live view until its block ends.

    `pace`: after each sentence, wait for as long as it takes to read it, times this factor; None
    means 1 on a terminal and 0 elsewhere.
    """

    def __init__(self, console: Console | None = None, *, pace: float | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.pace = pace if pace is not None else float(self.console.is_terminal)
        self._live: Live | None = None
        self._pods: Following | None = None
        self._nodes: Following | None = None
        self._colours: dict[str, str] = {}

    def follow(self, nodes: Following, pods: Following) -> None:
        """Start the live view, if there is a terminal."""
        self._nodes, self._pods = nodes, pods
        if self.console.is_terminal:
            self._live = Live(
                console=self.console,
                get_renderable=self._picture,
                refresh_per_second=PICTURES_PER_SECOND,
            )
            self._live.start(refresh=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    # --- narration -------------------------------------------------------------------------------

    def scene(self, number: int, of: int, title: str) -> None:
        """A new scene."""
        self.console.print()
        self.console.print(Text(f"{number}/{of}  {title}", style="bold"))

    def say(self, text: str) -> None:
        """Print one sentence."""
        self.console.print(f"     {text}", markup=False)
        self._let_read(text)

    def proved(self, text: str) -> None:
        """Print a claim that was checked and holds."""
        self.console.print(Text("  ok ", style="bold green") + Text(text))
        self._let_read(text)

    def quote(self, who: str, text: str) -> None:
        """Print the text of an object of the cluster."""
        self.console.print(Text(f"     {who} says: ") + Text(f'"{text}"', style="italic"))
        self._let_read(text)

    def output(self, command: str, text: str) -> None:
        """Print a command and what it printed."""
        self.console.print(Text(f"     $ {command}", style="bold"))
        for line in text.splitlines():
            self.console.print(Text(f"       {line}".rstrip()))
        self._let_read(text)

    def _let_read(self, text: str) -> None:
        """Wait until a reader can have read this."""
        time.sleep(self.pace * len(text.split()) / WORDS_PER_SECOND)

    # --- the picture -----------------------------------------------------------------------------

    def _picture(self) -> RenderableType:
        assert self._nodes is not None
        assert self._pods is not None
        pods = sorted(self._pods.objects().values(), key=lambda pod: str(pod["metadata"]["name"]))
        side_by_side = Table.grid(padding=(0, 3))
        side_by_side.add_column(no_wrap=True)
        side_by_side.add_column()
        side_by_side.add_row(self._node_table(pods), self._gang_table(pods))
        return Group(Rule(style="dim"), side_by_side)

    def _node_table(self, pods: Iterable[Object]) -> Table:
        """One row per node, one cell per GPU, in the colour of its gang."""
        assert self._nodes is not None
        cells: dict[str, list[str]] = {}
        for pod in pods:
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in {
                "Succeeded",
                "Failed",
            }:
                cells.setdefault(pod["spec"]["nodeName"], []).extend(
                    [self._colour(pod)] * gpus_of(pod)
                )
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("node", "", "GPUs"):
            table.add_column(heading, no_wrap=True)
        for node in sorted(
            self._nodes.objects().values(), key=lambda node: str(node["metadata"]["name"])
        ):
            name = node["metadata"]["name"]
            there = int(node["status"]["allocatable"].get(GPU, 0))
            taken = cells.get(name, [])[:there]
            bar = Text.assemble(
                *(("■ ", colour) for colour in taken), ("· " * (there - len(taken)), "dim")
            )
            table.add_row(
                name, "A100" if GPU_PRODUCT in node["metadata"].get("labels", {}) else "", bar
            )
        return table

    def _gang_table(self, pods: Iterable[Object]) -> Table:
        """One row per gang or plain pod: how many pods are bound, and the message of its first
        waiting pod.
        """
        gangs: dict[str, list[Object]] = {}
        for pod in pods:
            gangs.setdefault(gang_of(pod) or str(pod["metadata"]["name"]), []).append(pod)
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("gang", no_wrap=True)
        table.add_column("bound", no_wrap=True, justify="right")
        table.add_column("because")  # the one column that gives way on a narrow terminal
        for name, members in gangs.items():
            waiting = [pod for pod in members if not pod["spec"].get("nodeName")]
            told = refusal(waiting[0]) if waiting else ("", "")
            label = Text(name.rpartition("/")[2], style=self._colour(members[0]))
            because = Text(": ".join(filter(None, told)), no_wrap=True, overflow="ellipsis")
            table.add_row(label, f"{len(members) - len(waiting)}/{len(members)}", because)
        return table

    def _colour(self, pod: Object) -> str:
        name = gang_of(pod) or str(pod["metadata"]["name"])
        return self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])


def gpus_of(pod: Object) -> int:
    """How many GPUs a pod asks for."""
    containers = pod["spec"]["containers"]
    return sum(
        int(container.get("resources", {}).get("limits", {}).get(GPU, 0))
        for container in containers
    )

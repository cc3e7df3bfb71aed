"""The states of a member in states.md beside this module; `python -m tests.unit.state.diagram`
writes them.
"""

from __future__ import annotations

from pathlib import Path

from gangsched.state.members import SEEN, TABLE, TAKES_ROOM, Change, State

PAGE = Path(__file__).with_name("states.md")
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "member-states.md"
BEGIN, END = (
    "<!-- states: made by `python -m tests.unit.state.diagram` -->",
    "<!-- end of states -->",
)


def diagram() -> str:
    """A diagram of what our own orders and their answers lead to."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for state, row in TABLE.items():
        for following in State:
            ways = [
                change.value
                for change, then in row.items()
                if then is following is not state and _is_own(row, change)
            ]
            if ways:
                lines.append(f"    {_id(state)} --> {_id(following)}: {', '.join(ways)}")
    return "\n".join([*lines, "```"])


def takes_room() -> str:
    """The sentence of the reference about the states in which a pod takes room."""
    states = ", ".join(state.value for state in TABLE if state in TAKES_ROOM)
    return f"A pod takes room in the states {states}."


def with_diagram(page: str) -> str:
    """The page with what stands between the marks replaced."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{diagram()}\n{END}{rest.split(END)[1]}"


def _is_own(row: object, change: Change) -> bool:
    """Whether it is no more than that the watch shows what the member now is."""
    return change not in SEEN or row[change] is not SEEN[change]  # type: ignore[index]


def _id(state: State) -> str:
    return state.value.replace(" ", "_")


if __name__ == "__main__":
    PAGE.write_text(with_diagram(PAGE.read_text()))

"""Write what is said in each case, or in those that are named, into the page:
`make docs-messages`.
"""

from __future__ import annotations

import sys
import time

from tests.newcomer.cases import CASES
from tests.newcomer.page import write
from tests.newcomer.stage import Stage, stage

SETTLED_S = 1.5


def settled(stage: Stage) -> list[str]:
    """What is said once it has not changed for a while."""
    lines, since_s = stage.said(), time.monotonic()
    while time.monotonic() < since_s + SETTLED_S:
        time.sleep(0.05)
        if (now := stage.said()) != lines:
            lines, since_s = now, time.monotonic()
    return lines


def main(slugs: list[str]) -> None:
    """Play them and print what is said."""
    said: dict[str, list[str]] = {}
    with stage() as built:
        for slug in slugs or CASES:
            case = CASES[slug]
            print(f"\n== {slug}", flush=True)
            try:
                built.play(case)
                said[slug] = settled(built)
                print("\n".join(said[slug]))
                if case.mend:
                    for deed in case.mend:
                        deed(built.api)
                    print(f"-- mended in {built.wait_bound(case.starts):.2f} s")
            except (TimeoutError, AssertionError) as error:
                print(f"!! {error}\n" + "\n".join(built.said()))
            built.clear()
    write(said)


if __name__ == "__main__":
    main(sys.argv[1:])

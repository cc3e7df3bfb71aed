"""Check the facts of many random refusals, and the headlines read back.

python -m tests.properties.facts_of --seeds 20000 --first 0 --of rooms
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from gangsched.sentences import say
from tests.properties.facts_of import SITUATIONS, wrong

SHARES = {"rooms": 1, "reservations": 2, "slices": 2, "preemption": 4, "devices": 8}
"""One case in so many of each situation: the others take longer for one, and default to 20."""


def main() -> None:
    """Check the cases of these seeds; the exit code is 1 if anything is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--of", choices=sorted(SITUATIONS), default="")
    given = parser.parse_args()
    refused: Counter[str] = Counter()
    false: Counter[str] = Counter()

    for name in [given.of] if given.of else SITUATIONS:
        share = 1 if given.of else SHARES.get(name, 20)
        for seed in range(given.first, given.first + given.seeds // share):
            told = SITUATIONS[name](seed)
            if told is None:
                continue

            refused[name] += 1
            found = [*wrong(told, told.refusal)]
            if found:
                false[name] += 1
                print(f"{name} {seed}: {say(told.refusal).text}\n  {'; '.join(found)}")

        print(f"{name}: {refused[name]} refusals, {false[name]} with a false fact", flush=True)

    total = f"{refused.total()} refusals, {false.total()} with a false fact"
    print(f"{total}; seeds from {given.first} on")
    sys.exit(bool(false))


if __name__ == "__main__":
    main()

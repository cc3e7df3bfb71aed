"""Plants the bug that `MUTANT` names into every Python process that has this folder in its path."""

import os
import sys
import traceback

if name := os.environ.get("MUTANT"):
    try:
        from tests.mutants.planted import MUTANTS

        next(mutant for mutant in MUTANTS if mutant.name == name).plant()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)  # site would only print it, and the tests would pass without the bug

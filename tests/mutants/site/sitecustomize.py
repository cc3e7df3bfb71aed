"""Plants the bug that `MUTANT` or `WRONG_CORE` names into every Python process that has this folder
in its path.
"""

import os
import sys
import traceback

name, fault = os.environ.get("MUTANT"), os.environ.get("WRONG_CORE")
if name or fault:
    try:
        if name:
            from tests.mutants.planted import MUTANTS

            next(mutant for mutant in MUTANTS if mutant.name == name).plant()
        elif fault:
            from tests.wrong_core import plant

            plant(fault)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)  # site would only print it, and the tests would pass without the bug

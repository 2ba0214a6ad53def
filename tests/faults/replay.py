"""``python -m tests.faults.replay SEED [BUG]``: one seed again, with what happened on stderr."""

from __future__ import annotations

import sys
from contextlib import nullcontext

from tests.faults.bugs import BUGS
from tests.faults.promises import run
from tests.faults.world import Story


def main() -> None:
    seed, bug = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    with BUGS[bug]() if bug else nullcontext():
        run(seed, Story(lambda at, what: print(f"{at:9.4f}  {what}", file=sys.stderr)))


if __name__ == "__main__":
    main()

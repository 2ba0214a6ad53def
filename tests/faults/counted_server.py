"""``antiphon`` whose replicas write down what their engines do (``counted_worker``). Only tests start it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from antiphon.cli.main import main
from antiphon.inference.supervisor import Supervisor

_spawn = Supervisor._spawn


def spawn(self: Supervisor, address: str) -> subprocess.Popen[bytes]:
    self._replica = replace(self._replica, command=(sys.executable, "-m", "tests.faults.counted_worker"))
    return _spawn(self, address)


if __name__ == "__main__":
    Supervisor._spawn = spawn  # type: ignore[method-assign]
    sys.exit(main())

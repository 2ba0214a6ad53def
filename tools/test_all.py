"""Every test, the slow ones too, file by file; after an interruption, only the files that have not passed yet.

What has passed is remembered per state of the tracked files in ``.test-all``; arguments go to pytest.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path

MEMORY = Path(".test-all")
NOTHING_COLLECTED = 5


def state() -> str:
    """A name for the content of the working tree, as far as version control knows it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    change = subprocess.run(["git", "diff", "HEAD", "--no-ext-diff"], capture_output=True, check=False).stdout
    return hashlib.sha256(head.encode() + change).hexdigest()[:16]


def main() -> int:
    MEMORY.mkdir(exist_ok=True)
    record = MEMORY / state()
    passed = set(record.read_text(encoding="utf-8").splitlines()) if record.exists() else set()
    files = [str(path) for path in sorted(Path("tests").rglob("test_*.py"))]
    waiting = [file for file in files if file not in passed]
    print(f"test-all: {len(files)} files, {len(files) - len(waiting)} passed before", flush=True)
    failed: list[str] = []
    start = time.monotonic()
    for number, file in enumerate(waiting, 1):
        print(f"[{number}/{len(waiting)}] {file} ({time.monotonic() - start:.0f} s)", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "slow or not slow", file, *sys.argv[1:]]
        if subprocess.run(command, check=False).returncode in {0, NOTHING_COLLECTED}:
            with record.open("a", encoding="utf-8") as passes:
                passes.write(file + "\n")
        else:
            failed.append(file)
    print(f"test-all: {len(failed)} of {len(files)} files failed, {time.monotonic() - start:.0f} s", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

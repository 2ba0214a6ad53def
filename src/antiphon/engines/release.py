"""Which model answers: a name for exactly what a replica has loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from antiphon.engines.base import ReplicaSpec


def release_of(spec: ReplicaSpec) -> str:
    """Equal for two replicas that read the same files with the same settings. Blocking; reads no file, only when it was written.

    Of a server that is not ours only its address and the model's name are known.
    """
    settings = (spec.engine, spec.model, spec.precision, spec.kv_precision, str(spec.context_tokens), spec.vocabulary, spec.url)
    files = _files(Path(spec.model_path)) if spec.model_path else ()
    return hashlib.sha256("\0".join((*settings, *files)).encode()).hexdigest()[:16]


def _files(folder: Path) -> Iterator[str]:
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        state = file.stat()
        yield f"{file.relative_to(folder)} {state.st_size} {state.st_mtime_ns}"

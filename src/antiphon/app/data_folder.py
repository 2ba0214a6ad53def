"""The data folder: where its files are, and the lock that gives it to one server."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from antiphon.core.errors import AntiphonError, ConfigErrors


class DataFolderInUse(AntiphonError):
    """Another server has this data folder."""

    code = "data_folder_in_use"


@dataclass(frozen=True, slots=True)
class FolderHold:
    """The lock, held. Its file says who holds it: the process id, then the server's address once there is one."""

    descriptor: int

    def publish(self, url: str) -> None:
        """Write who serves this folder, for commands run beside the server."""
        content = f"{os.getpid()}\n{url}\n".encode()
        os.pwrite(self.descriptor, content, 0)
        os.ftruncate(self.descriptor, len(content))


@dataclass(frozen=True, slots=True)
class DataFolder:
    root: Path

    @property
    def database(self) -> Path:
        return self.root / "antiphon.db"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def files(self) -> Path:
        return self.root / "files"

    @property
    def lock(self) -> Path:
        return self.root / "serve.lock"

    def create(self) -> None:
        """Make the folder, readable by its owner alone; harmless when it is there. Raises ``ConfigErrors``."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as failure:
            raise ConfigErrors([("data", f"cannot be a folder at {self.root}: {failure.strerror}")]) from failure

    def server_url(self) -> str | None:
        """Where the server of this folder listens; ``None`` where none runs, or it is not ready yet. Blocking."""
        try:
            pid, url = self.lock.read_text(encoding="utf-8").splitlines()[:2]
            os.kill(int(pid), 0)
        except (OSError, ValueError):
            return None
        return url

    @contextmanager
    def held(self) -> Iterator[FolderHold]:
        """Own the folder for as long as the context lasts. Raises ``DataFolderInUse``, and ``ConfigErrors`` where it cannot be made.

        The kernel drops the lock with the process, however it ends.
        """
        self.create()
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                url = self.server_url()
                where = "" if url is None else f" ({url})"
                raise DataFolderInUse(f"the data folder {self.root} is in use by another server{where}") from None
            os.ftruncate(descriptor, 0)
            yield FolderHold(descriptor)
        finally:
            os.close(descriptor)

"""Pools that were added while a server ran: OpenAI-compatible servers, in a file of the data folder that its owner alone can read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from antiphon.core.errors import ConfigErrors
from antiphon.core.pools import PoolSpec


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    model: str
    url: str
    api_key: str = ""


class AddedPools:
    """The file ``endpoints.json`` of a data folder. Every method blocks.

    It is no part of a backup, since it holds keys.
    """

    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / "endpoints.json"

    def read(self, taken: Collection[str] = ()) -> tuple[PoolSpec, ...]:
        """Every pool but those whose name is ``taken`` by a configured one. Raises ``ConfigErrors``."""
        try:
            entries = msgspec.json.decode(self._file.read_bytes(), type=list[_Entry])
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as failure:
            raise ConfigErrors([(str(self._file), f"cannot be read: {failure.strerror or failure}")]) from failure
        except msgspec.MsgspecError as failure:
            raise ConfigErrors([(str(self._file), f"is not what was written: {failure}")]) from failure
        return tuple(
            PoolSpec(name=entry.name, model=entry.model, engine="openai", url=entry.url, api_key=entry.api_key, added=True)
            for entry in entries
            if entry.name not in taken
        )

    def write(self, pools: Sequence[PoolSpec]) -> None:
        """Replace the file in one step. Raises ``OSError``."""
        content = msgspec.json.format(msgspec.json.encode([_Entry(pool.name, pool.model, pool.url, pool.api_key) for pool in pools]))
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, staged = tempfile.mkstemp(dir=self._file.parent, prefix=".endpoints-")  # readable by its owner alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content + b"\n")
                file.flush()
                os.fsync(file.fileno())
            Path(staged).replace(self._file)
        finally:
            Path(staged).unlink(missing_ok=True)

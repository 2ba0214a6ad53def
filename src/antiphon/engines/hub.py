"""Models of the Hugging Face Hub, through its own client: mirrors, tokens, proxies and offline mode are the user's settings for that."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from antiphon.core.errors import ModelUnusable
from antiphon.engines.model_tools import Progress, tree_bytes

SCHEME = "hf:"
_ADDRESS = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:/(.+\.gguf))?\Z", re.ASCII)
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf\Z")
_IR = re.compile(r"(openvino_model\.(xml|bin)|[\w.-]+\.json|[\w.-]+\.jinja)\Z", re.ASCII)
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository, and the one file in it that is meant where that was said."""

    repository: str
    file: str | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """``sha256`` is what the hub says of a large file; small ones have none there."""

    file: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A GGUF file or a folder, and the SHA-256 that a file must have, where the hub states one."""

    path: Path
    sha256: str | None


def hub_source(text: str) -> HubSource | None:
    """``hf:owner/repo`` or ``hf:owner/repo/path/file.gguf``; ``None`` for what does not begin with ``hf:``. Raises ``ModelUnusable``."""
    if not text.startswith(SCHEME):
        return None
    found = _ADDRESS.match(text)
    if found is None or ".." in text:
        raise ModelUnusable(f"{text!r} is no address of a model: write hf:owner/repository or hf:owner/repository/file.gguf.")
    return HubSource(found[1], found[2])


def fetch(source: HubSource, folder: Path, progress: Progress) -> Fetched:
    """Download what ``source`` means into the empty ``folder``. Raises ``ModelUnusable``: in one sentence, what to do about it."""
    from huggingface_hub import HfApi, hf_hub_download  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    place = f"hf:{source.repository}"
    try:
        endpoint = os.environ.get("HF_ENDPOINT")
        info = HfApi(endpoint=endpoint).model_info(source.repository, files_metadata=True)
        listed = [_Wanted(one.rfilename, one.size or 0, None if one.lfs is None else one.lfs.sha256) for one in info.siblings or ()]
        wanted = _chosen(place, source.file, listed)
        with _watched(folder, sum(one.bytes for one in wanted), progress):
            for one in wanted:
                hf_hub_download(source.repository, one.file, revision=info.sha, local_dir=folder, endpoint=endpoint)
    except GatedRepoError as error:
        raise ModelUnusable(f"{place} wants its terms accepted: do so on its page, then set HF_TOKEN.") from error
    except RepositoryNotFoundError as error:
        raise ModelUnusable(f"There is no {place}, or it is private: HF_TOKEN names who you are.") from error
    except (HfHubHTTPError, OSError) as error:
        raise ModelUnusable(f"{place} cannot be fetched: {_first_line(error)}") from error
    if len(wanted) == 1:
        return Fetched(folder / wanted[0].file, wanted[0].sha256)
    return Fetched(folder, None)


def _chosen(place: str, file: str | None, listed: list[_Wanted]) -> list[_Wanted]:
    if file is not None:
        found = [one for one in listed if one.file == file]
        if not found:
            raise ModelUnusable(f"{place} has no file {file}.")
        return found
    if any(one.file == "openvino_model.xml" for one in listed):
        return [one for one in listed if _IR.match(one.file)]
    ggufs = [one for one in listed if one.file.endswith(".gguf") and not _SPLIT.search(one.file)]
    if len(ggufs) == 1:
        return ggufs
    if not ggufs:
        raise ModelUnusable(f"{place} has neither a GGUF file in one piece nor an OpenVINO model.")
    names = ", ".join(one.file for one in ggufs[:20])
    raise ModelUnusable(f"{place} has several GGUF files; add one of them to the address: {names}.")


@contextmanager
def _watched(folder: Path, expected_bytes: int, progress: Progress) -> Iterator[None]:
    """Report how the folder grows, whatever the client's version prints."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_S):
            progress("downloading", min(tree_bytes(folder), expected_bytes), expected_bytes)

    watcher = threading.Thread(target=watch, name="download", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    progress("downloading", expected_bytes, expected_bytes)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

"""Static embeddings: a text is the mean of its tokens' vectors. The vectors come in a package, so nothing is downloaded.

The package is ``wordllama`` (MIT): 256 dimensions for each of 32,000 tokens, trained for this use. Only its two data files are read;
none of its code runs. A thousand short passages take a tenth of a second. numpy is loaded at the first use, not at a start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from antiphon.core.errors import ModelUnusable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_PACKAGE = "wordllama"
_WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
_VOCABULARY = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"


def static_embedder() -> StaticEmbedder | None:
    """The embedder; ``None`` on a platform for which the package is not made."""
    try:
        distribution(_PACKAGE)
    except PackageNotFoundError:
        return None
    return StaticEmbedder()


class StaticEmbedder:
    """Implements ``Embedder``. The files are read at the first use; raises ``ModelUnusable`` where they are not there."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: tuple[Tokenizer, NDArray[np.float16]] | None = None

    def embed(self, texts: Sequence[str]) -> bytes:
        return self._vectors(texts).tobytes()

    def near(self, text: str, vectors: bytes | bytearray, least_cosine: float) -> Mapping[int, float]:
        import numpy as np

        (asked,) = self._vectors([text])
        cosines = np.frombuffer(vectors, np.float32).reshape(-1, len(asked)) @ asked
        rows = np.flatnonzero(cosines > least_cosine)
        return dict(zip(rows.tolist(), cosines[rows].tolist(), strict=True))

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        tokenizer, table = self._opened()
        vectors = np.zeros((len(texts), table.shape[1]), np.float32)
        for vector, encoded in zip(vectors, tokenizer.encode_batch(list(texts), add_special_tokens=False), strict=True):
            if encoded.ids:
                np.mean(table[encoded.ids], axis=0, dtype=np.float32, out=vector)
                vector /= max(float(np.linalg.norm(vector)), 1e-6)
        return vectors

    def _opened(self) -> tuple[Tokenizer, NDArray[np.float16]]:
        with self._lock:
            if self._files is None:
                self._files = _open_files()
            return self._files


def _open_files() -> tuple[Tokenizer, NDArray[np.float16]]:
    from tokenizers import Tokenizer

    try:
        package = distribution(_PACKAGE)
        table = _read_tensor(Path(str(package.locate_file(_WEIGHTS))))
        tokenizer = Tokenizer.from_file(str(package.locate_file(_VOCABULARY)))
    except (PackageNotFoundError, OSError, ValueError, KeyError) as error:
        raise ModelUnusable(f"The package {_PACKAGE} does not hold the expected embeddings.") from error
    return tokenizer, table


def _read_tensor(path: Path) -> NDArray[np.float16]:
    """The tensor of a safetensors file: eight bytes with the header's length, the header as JSON, the data. Mapped, not read."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[_TENSOR]
    rows, dimensions = entry["shape"]
    if entry["dtype"] != "F16":
        raise ValueError(entry["dtype"])
    offset = 8 + length + entry["data_offsets"][0]
    return np.memmap(path, np.float16, mode="r", offset=offset, shape=(rows, dimensions))

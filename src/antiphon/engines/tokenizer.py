"""A model's tokenizer and chat template, read from its folder.

Two encoders are made from one vocabulary: one knows the control tokens and encodes only what the chat template wrote; the
other has never heard of them and encodes what people wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from antiphon.core.errors import ModelUnusable
from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage, ThinkingMarks
from antiphon.engines.framing import framed
from antiphon.engines.text import ByteTextStream
from antiphon.engines.tokenizer_file import TokenizerFile, read_tokenizer_file

_STRETCHES_KEPT = 256
"""What a template writes between contents, by text; a template has a handful."""


class ModelTokenizer:
    """Implements ``Tokenizer``. Safe to use from several threads.

    What turns ids into text is there at once; what turns text into ids is made when ``prepare`` or the first of its methods
    is called, which takes most of a second. A replica never needs it.
    """

    def __init__(self, file: TokenizerFile) -> None:
        self._file = file
        self._control_ids = file.control_ids
        self._end_token_ids = file.end_token_ids
        self._context_tokens = file.context_tokens
        self._thinking = file.thinking
        self._token_bytes = _byte_table(file)
        self._lock = Lock()
        self._encoders: _Encoders | None = None
        self._stretches: dict[str, list[int]] = {}

    @property
    def thinking(self) -> ThinkingMarks | None:
        return self._thinking

    @property
    def end_token_ids(self) -> frozenset[int]:
        return self._end_token_ids

    @property
    def context_tokens(self) -> int:
        """The longest context the model was made for; 0 when its files do not say."""
        return self._context_tokens

    @property
    def control_ids(self) -> frozenset[int]:
        """Special tokens: they render as nothing."""
        return self._control_ids

    @property
    def markup_ids(self) -> frozenset[int]:
        """Ids that only the chat template may bring into a prompt."""
        return self._file.markup_ids

    def prepare(self) -> _Encoders:
        """Make the encoders and the template, once. Raises ``ModelUnusable`` where the files cannot be used."""
        with self._lock:
            if self._encoders is None:
                self._encoders = _Encoders(self._file)
            return self._encoders

    def encode(self, text: str) -> list[int]:
        return self.prepare().plain.encode(text, add_special_tokens=False).ids

    def encode_trusted(self, text: str) -> list[int]:
        """Ids of text in which the names of control tokens stand for the tokens; never for text of users or files."""
        ids = self._stretches.get(text)
        if ids is None:
            ids = self.prepare().trusted.encode(text, add_special_tokens=False).ids
            if len(self._stretches) < _STRETCHES_KEPT:
                self._stretches[text] = ids
        return list(ids)

    def frame(self, roles: Sequence[Role]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.encode_trusted(stretch)) for stretch in self.prepare().template.frame(roles))

    def prompt(self, messages: Sequence[PromptMessage]) -> list[int]:
        return framed(self.prepare().template.folded(messages), self.frame, self.encode)

    def text_stream(self, stop: Sequence[str] = ()) -> ByteTextStream:
        return ByteTextStream(self._token_bytes, stop, self._control_ids)


class _Encoders:
    """The slow half of a tokenizer: its libraries load here too."""

    def __init__(self, file: TokenizerFile) -> None:
        from tokenizers import Tokenizer

        from antiphon.engines.template import ChatTemplate

        try:
            self.trusted = Tokenizer.from_str(json.dumps(file.tokenizer))
            self.plain = Tokenizer.from_str(json.dumps(file.without_added_tokens()))
        except Exception as error:  # the library raises bare Exception
            raise ModelUnusable("The model's tokenizer cannot be read.") from error
        self.template = ChatTemplate(file.chat_template, file.bos_token, file.eos_token)


def load_tokenizer(folder: Path, *, prepared: bool = True) -> ModelTokenizer:
    """The tokenizer of a model folder. Blocking. Raises ``ModelUnusable`` when the folder has none that can be used.

    With ``prepared`` false what encodes is neither made nor checked until it is first used.
    """
    tokenizer = ModelTokenizer(read_tokenizer_file(folder))
    if prepared:
        tokenizer.prepare()
    return tokenizer


def _byte_table(file: TokenizerFile) -> Callable[[int], bytes]:
    names = file.names()
    to_bytes = _byte_level_bytes if file.byte_level else _sentencepiece_bytes
    plain_text = file.added_ids
    table = {token_id: name.encode() if token_id in plain_text else to_bytes(name) for token_id, name in names.items()}
    return lambda token_id: table.get(token_id, b"")


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: the character that means each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in set(printable)]
    return {chr(value): value for value in printable} | {chr(256 + index): value for index, value in enumerate(others)}


_ALPHABET = _byte_level_alphabet()


def _byte_level_bytes(name: str) -> bytes:
    if all(character in _ALPHABET for character in name):
        return bytes(_ALPHABET[character] for character in name)
    return name.encode()


def _sentencepiece_bytes(name: str) -> bytes:
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace("\u2581", " ").encode()

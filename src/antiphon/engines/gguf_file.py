"""What Antiphon reads from a GGUF file besides its weights: family, context, tokenizer, chat template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gguf import GGUFReader

from antiphon.core.errors import ModelUnusable
from antiphon.engines.tokenizer_file import JsonObject, TokenizerFile, chat_template_or_default, known_end_ids

FAMILIES = ("llama", "qwen2", "qwen3")
"""Architectures that OpenVINO GenAI's GGUF reader builds."""

_CONTROL, _USER_DEFINED = 3, 4
_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class _Split:
    """How text is cut before byte-pair merges: ``digits`` one by one first, then by ``pattern``."""

    pattern: str
    digits: bool = False
    normal_form: str = ""
    ignore_merges: bool = False


_SPLITS = {
    "default": _Split(_GPT2_SPLIT),
    "gpt-2": _Split(_GPT2_SPLIT),
    "smollm": _Split(_GPT2_SPLIT, digits=True),
    "starcoder": _Split(_GPT2_SPLIT, digits=True),
    "refact": _Split(_GPT2_SPLIT, digits=True),
    "qwen2": _Split(_QWEN2_SPLIT, normal_form="NFC"),
    "deepseek-r1-qwen": _Split(_QWEN2_SPLIT),
    "llama-bpe": _Split(_LLAMA3_SPLIT, ignore_merges=True),
    "llama3": _Split(_LLAMA3_SPLIT, ignore_merges=True),
    "llama-v3": _Split(_LLAMA3_SPLIT, ignore_merges=True),
}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """The part of a GGUF file that OpenVINO does not need."""

    family: str
    tokenizer: TokenizerFile


def read_gguf(path: Path) -> GgufModel:
    """Check a GGUF file and read its tokenizer. Blocking, about a second. Raises ``ModelUnusable`` with one sentence."""
    reader = _open(path)
    family = _string(reader, "general.architecture")
    if family not in FAMILIES:
        raise ModelUnusable(f"{path.name} is a model of the {family or 'unknown'!r} family; supported are {', '.join(FAMILIES)}.")
    kind = _string(reader, "tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelUnusable(f"{path.name} has a tokenizer of kind {kind or 'unknown'!r}; supported is byte-level BPE (gpt2).")
    return GgufModel(family=family, tokenizer=_tokenizer(reader, path, family))


def _open(path: Path) -> GGUFReader:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelUnusable(f"{path.name} cannot be read: {error.strerror}.") from error
    if magic != b"GGUF":
        raise ModelUnusable(f"{path.name} is not a GGUF file.")
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError, OverflowError, MemoryError) as error:
        raise ModelUnusable(f"{path.name} is damaged or incomplete.") from error
    if any(int(tensor.data_offset) + int(tensor.n_bytes) > path.stat().st_size for tensor in reader.tensors):
        raise ModelUnusable(f"{path.name} is damaged or incomplete.")
    return reader


def _tokenizer(reader: GGUFReader, path: Path, family: str) -> TokenizerFile:
    names = _strings(reader, "tokenizer.ggml.tokens")
    kinds = _numbers(reader, "tokenizer.ggml.token_type")
    split_name = _string(reader, "tokenizer.ggml.pre") or "default"
    split = _SPLITS.get(split_name)
    if split is None:
        raise ModelUnusable(f"{path.name} splits text in a way Antiphon does not know ({split_name!r}).")
    if not names or len(kinds) != len(names):
        raise ModelUnusable(f"{path.name} has no complete vocabulary.")
    added = {token_id: name for token_id, name in enumerate(names) if kinds[token_id] in {_CONTROL, _USER_DEFINED}}
    controls = frozenset(token_id for token_id in added if kinds[token_id] == _CONTROL)
    tokenizer = _hugging_face_json(names, _strings(reader, "tokenizer.ggml.merges"), split, added, controls)
    ends = known_end_ids(tokenizer) | {
        number for key in ("eos_token_id", "eot_token_id") for number in _numbers(reader, f"tokenizer.ggml.{key}")
    }
    if not ends:
        raise ModelUnusable(f"{path.name} does not say which token ends an answer.")
    template = _string(reader, "tokenizer.chat_template")
    return TokenizerFile(
        tokenizer=tokenizer,
        chat_template=chat_template_or_default(template, {name: token_id for token_id, name in added.items()}),
        bos_token=_named(reader, names, "bos_token_id"),
        eos_token=_named(reader, names, "eos_token_id"),
        end_token_ids=ends,
        context_tokens=next(iter(_numbers(reader, f"{family}.context_length")), 0),
    )


def _hugging_face_json(names: list[str], merges: list[str], split: _Split, added: dict[int, str], controls: frozenset[int]) -> JsonObject:
    steps: list[JsonObject] = [{"type": "Digits", "individual_digits": True}] if split.digits else []
    steps.append({"type": "Split", "pattern": {"Regex": split.pattern}, "behavior": "Isolated", "invert": False})
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": name,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": token_id in controls,
            }
            for token_id, name in added.items()
        ],
        "normalizer": {"type": split.normal_form} if split.normal_form else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": split.ignore_merges,
            "vocab": {name: token_id for token_id, name in enumerate(names)},
            "merges": [*merges],
        },
    }


def _named(reader: GGUFReader, names: list[str], key: str) -> str:
    token_id = next(iter(_numbers(reader, f"tokenizer.ggml.{key}")), -1)
    return names[token_id] if 0 <= token_id < len(names) else ""


def _contents(reader: GGUFReader, key: str) -> list[object]:
    """A field's values; a single value is a list of one, an absent field an empty list."""
    field = reader.get_field(key)
    if field is None:
        return []
    value = cast("object", field.contents())
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _string(reader: GGUFReader, key: str) -> str:
    return next((value for value in _contents(reader, key) if isinstance(value, str)), "")


def _strings(reader: GGUFReader, key: str) -> list[str]:
    return [value for value in _contents(reader, key) if isinstance(value, str)]


def _numbers(reader: GGUFReader, key: str) -> list[int]:
    return [value for value in _contents(reader, key) if isinstance(value, int)]

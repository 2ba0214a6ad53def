"""A tokenizer on disk: ``antiphon-tokenizer.json`` beside a converted model, or Hugging Face's files beside an exported one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from antiphon.core.errors import ModelUnusable
from antiphon.engines.base import ThinkingMarks

TOKENIZER_FILE = "antiphon-tokenizer.json"

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
JsonObject: TypeAlias = dict[str, Json]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The template of models that have its tokens and no template of their own."""

_THINK, _THOUGHT = "<think>", "</think>"
_END_NAMES = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>")


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """What a tokenizer is made of. ``tokenizer`` is in Hugging Face's ``tokenizer.json`` format.

    ``control_ids`` are the special tokens; ``added_ids`` are all tokens that are matched as whole strings, special or not.
    """

    tokenizer: JsonObject
    chat_template: str
    bos_token: str
    eos_token: str
    end_token_ids: frozenset[int]
    context_tokens: int

    @property
    def control_ids(self) -> frozenset[int]:
        """Special tokens: they render as nothing."""
        return frozenset(token_id for token_id, _, special in _added_tokens(self.tokenizer) if special)

    @property
    def markup_ids(self) -> frozenset[int]:
        """Tokens that only a template may bring into a prompt: the special ones, and the marks of turns, tools and thoughts that are
        not called special. An added token that the vocabulary can also spell from its parts is plain text.
        """
        spelled = self._spelled()
        return frozenset(token_id for token_id, name, special in _added_tokens(self.tokenizer) if special or name not in spelled)

    @property
    def added_ids(self) -> frozenset[int]:
        return frozenset(token_id for token_id, _, _ in _added_tokens(self.tokenizer))

    @property
    def thinking(self) -> ThinkingMarks | None:
        """The marks of thought, where the model has them as tokens of their own."""
        names = {name: token_id for token_id, name, _ in _added_tokens(self.tokenizer)}
        return ThinkingMarks(names[_THINK], names[_THOUGHT]) if _THINK in names and _THOUGHT in names else None

    @property
    def byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(self.tokenizer.get("decoder"))

    def names(self) -> dict[int, str]:
        """Every token's name in the vocabulary's own alphabet."""
        return {token_id: name for name, token_id in _vocabulary(self.tokenizer)} | {
            i: name for i, name, _ in _added_tokens(self.tokenizer)
        }

    def without_added_tokens(self) -> JsonObject:
        """The same tokenizer for text in which no control token exists: neither matched as a whole nor reached by the model's own
        rules. The ids of all other tokens stay.
        """
        markup = self.markup_ids
        hidden = {name for token_id, name, _ in _added_tokens(self.tokenizer) if token_id in markup}
        model = dict(_object(self.tokenizer.get("model")))
        vocabulary = model.get("vocab")
        if isinstance(vocabulary, dict):
            model["vocab"] = {name: token_id for name, token_id in vocabulary.items() if name not in hidden}
        elif isinstance(vocabulary, list):
            model["vocab"] = [
                [f"\ue0f2{index}\ue0f3", entry[1]] if isinstance(entry, list) and entry[0] in hidden else entry
                for index, entry in enumerate(vocabulary)
            ]
        if model.get("unk_token") in hidden:
            model["unk_token"] = None
        merges = model.get("merges")
        if isinstance(merges, list):
            model["merges"] = [merge for merge in merges if hidden.isdisjoint((*_pair(merge), "".join(_pair(merge))))]
        return {**self.tokenizer, "model": model, "added_tokens": [], "post_processor": None}

    def _spelled(self) -> frozenset[str]:
        """Names that merging parts of the vocabulary can make."""
        merges = _object(self.tokenizer.get("model")).get("merges")
        return frozenset("".join(_pair(merge)) for merge in merges) if isinstance(merges, list) else frozenset()

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": 1,
                "tokenizer": self.tokenizer,
                "chat_template": self.chat_template,
                "bos_token": self.bos_token,
                "eos_token": self.eos_token,
                "end_token_ids": sorted(self.end_token_ids),
                "context_tokens": self.context_tokens,
            },
            ensure_ascii=False,
        )


def read_tokenizer_file(folder: Path) -> TokenizerFile:
    """Our own file if the folder has one, else Hugging Face's. Raises ``ModelUnusable``."""
    if (folder / TOKENIZER_FILE).is_file():
        return _from_own(_read_object(folder / TOKENIZER_FILE))
    if (folder / "tokenizer.json").is_file():
        return _from_hugging_face(folder)
    raise ModelUnusable(f"The folder {folder.name} has neither {TOKENIZER_FILE} nor tokenizer.json.")


def known_end_ids(tokenizer: JsonObject) -> frozenset[int]:
    """Control tokens that are known to end a turn in some family of models."""
    return frozenset(token_id for token_id, name, special in _added_tokens(tokenizer) if special and name in _END_NAMES)


def _from_own(content: JsonObject) -> TokenizerFile:
    return TokenizerFile(
        tokenizer=_object(content.get("tokenizer")),
        chat_template=_text(content.get("chat_template")),
        bos_token=_text(content.get("bos_token")),
        eos_token=_text(content.get("eos_token")),
        end_token_ids=_integers(content.get("end_token_ids")),
        context_tokens=_integer(content.get("context_tokens")),
    )


def _from_hugging_face(folder: Path) -> TokenizerFile:
    tokenizer = _read_object(folder / "tokenizer.json")
    settings = _read_object(folder / "tokenizer_config.json")
    config = _read_object(folder / "config.json")
    generation = _read_object(folder / "generation_config.json")
    names = {name: token_id for token_id, name, _ in _added_tokens(tokenizer)}
    eos = _token_text(settings.get("eos_token"))
    ends = known_end_ids(tokenizer) | _integers(config.get("eos_token_id")) | _integers(generation.get("eos_token_id"))
    if eos in names:
        ends |= {names[eos]}
    if not ends:
        raise ModelUnusable(f"The folder {folder.name} does not say which token ends an answer.")
    return TokenizerFile(
        tokenizer=tokenizer,
        chat_template=_hugging_face_template(folder, settings, names),
        bos_token=_token_text(settings.get("bos_token")),
        eos_token=eos,
        end_token_ids=ends,
        context_tokens=_integer(config.get("max_position_embeddings")),
    )


def _hugging_face_template(folder: Path, settings: JsonObject, names: dict[str, int]) -> str:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {_text(entry.get("name")): _text(entry.get("template")) for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return chat_template_or_default(_text(template), names)


def chat_template_or_default(template: str, names: dict[str, int]) -> str:
    """``template``, or ChatML where the model has its tokens. Raises ``ModelUnusable`` for a model made for no chat."""
    if template:
        return template
    if "<|im_start|>" in names:
        return CHATML
    raise ModelUnusable("The model has no chat template: it was not made for chat.")


def _added_tokens(tokenizer: JsonObject) -> list[tuple[int, str, bool]]:
    added = tokenizer.get("added_tokens")
    entries = [entry for entry in added if isinstance(entry, dict)] if isinstance(added, list) else []
    return [(_integer(entry.get("id")), _text(entry.get("content")), entry.get("special") is True) for entry in entries]


def _vocabulary(tokenizer: JsonObject) -> list[tuple[str, int]]:
    vocabulary = _object(tokenizer.get("model")).get("vocab")
    if isinstance(vocabulary, dict):
        return [(name, _integer(token_id)) for name, token_id in vocabulary.items()]
    if isinstance(vocabulary, list):
        return [(_text(entry[0]), index) for index, entry in enumerate(vocabulary) if isinstance(entry, list)]
    raise ModelUnusable("The model's tokenizer has no vocabulary.")


def _pair(merge: Json) -> tuple[str, str]:
    """A merge is a pair, or in older files a text with a blank between the two."""
    if isinstance(merge, list):
        return _text(merge[0]), _text(merge[1])
    left, _, right = _text(merge).partition(" ")
    return left, right


def _read_object(path: Path) -> JsonObject:
    if not path.is_file():
        return {}
    try:
        return _object(cast("Json", json.loads(path.read_text(encoding="utf-8"))))
    except ValueError as error:
        raise ModelUnusable(f"{path.name} is not valid JSON.") from error


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _token_text(value: Json) -> str:
    return _text(value.get("content")) if isinstance(value, dict) else _text(value)


def _integer(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _integers(value: Json) -> frozenset[int]:
    values = value if isinstance(value, list) else [value]
    return frozenset(number for number in values if isinstance(number, int) and not isinstance(number, bool))

"""Which earlier passages a message refers to. Pure: words and vectors in, a choice out.

Two measures are joined: how many of the message's rarer words a passage holds (BM25, S. Robertson and H. Zaragoza, The Probabilistic
Relevance Framework, 2009), and how near the two are in meaning (cosine of embeddings). A message that speaks of the speaker, or of
what was said before, looks first for what the speaker has told; any other one has to be near indeed. An earlier question seldom holds
an answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from antiphon.core.ids import MessageId
from antiphon.core.messages import Role, Snippet

PASSAGE_CHARACTERS = 320

_K1, _B = 1.2, 0.75
_LEAST_COSINE = 0.2
_WORD_WEIGHT = 0.12
_TOLD_WEIGHT = 0.3
_QUESTION_WEIGHT = 0.4
_LEAST_SCORE = 0.5
_LEAST_SCORE_PERSONAL = 0.25
_WITHIN_OF_BEST = 0.4
_OF_READ, _OF_READ_PERSONAL = 1.0, 0.6
_MOST_SNIPPETS = 8
_PERSONAL = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|we|us|our|ours|again|earlier|before|said|told|mentioned|remember)\b", re.IGNORECASE
)
_REQUEST = re.compile(r"\b(?:tell|give|show|let|help|teach|send|write|explain(?: \w+)? to) (?:me|us)\b", re.IGNORECASE)
_SPEAKER = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|we|us|our|ours)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_BREAK = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_COMMON = frozenset(
    """
    a about after again all also am an and any are as at be because been before being but by can could did do does doing done down
    each few for from further get give go got had has have having he her here him his how i if in into is it its just know let like
    make many may me might more most much must my need no nor not now of off ok on once one only or other our out over own please
    same say she should so some something such take tell than that the their them then there these they thing this those through to
    too under until up us use very want was way we well were what when where which while who whom why will with would yes you your
    i'm it's don't what's i'd i'll i've you're that's can't
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of an earlier message, short enough to be quoted. ``words`` counts its content words, ``length`` of them in all.

    ``told``: a person says it of themselves; ``asks``: it is a question.
    """

    message_id: MessageId
    role: Role
    text: str
    words: Mapping[str, int]
    length: int
    told: bool
    asks: bool


def content_words(text: str) -> list[str]:
    """Words in lower case without the commonest of English, cut to a rough stem; single characters of scripts without spaces."""
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _COMMON]


def is_personal(text: str) -> bool:
    """Whether it speaks of the speaker, or of what was said before."""
    return _PERSONAL.search(_REQUEST.sub("", text)) is not None


def passages_of(message_id: MessageId, role: Role, content: str) -> tuple[Passage, ...]:
    """The message in passages of about ``PASSAGE_CHARACTERS``, cut between sentences where it can be."""
    passages: list[Passage] = []
    held = ""
    for sentence in _BREAK.split(content):
        for start in range(0, len(sentence), PASSAGE_CHARACTERS):
            piece = " ".join(sentence[start : start + PASSAGE_CHARACTERS].split())
            if held and len(held) + len(piece) >= PASSAGE_CHARACTERS:
                passages.append(_passage(message_id, role, held))
                held = ""
            held = f"{held} {piece}" if held else piece
    if held:
        passages.append(_passage(message_id, role, held))
    return tuple(passage for passage in passages if passage.words)


def choose(
    question: str,
    passages: Sequence[Passage],
    cosines: Sequence[float],
    in_view: Collection[MessageId],
    *,
    at_most: int,
    count: Callable[[Snippet], int],
) -> tuple[Snippet, ...]:
    """The passages that ``question`` refers to, in their own order, at most ``at_most`` tokens by ``count``.

    ``cosines`` are those of the question with each passage. None where nothing comes near, and none where a message ``in_view``, which
    the model reads anyway, comes nearer.
    """
    personal = is_personal(question)
    scores = _scores(content_words(question), passages, cosines, personal=personal)
    seen = [index for index, passage in enumerate(passages) if passage.message_id in in_view]
    read = max((scores[index] for index in seen), default=0.0)
    unseen = set(range(len(passages))).difference(seen)
    order = nlargest(_MOST_SNIPPETS, unseen, key=lambda index: (scores[index], -index))
    best = scores[order[0]] if order else 0.0
    least = max(
        _LEAST_SCORE_PERSONAL if personal else _LEAST_SCORE,
        best * _WITHIN_OF_BEST,
        read * (_OF_READ_PERSONAL if personal else _OF_READ),
    )
    chosen: list[int] = []
    left = at_most
    for index in order:
        if scores[index] < least:
            break
        tokens = count(_snippet(passages[index]))
        if tokens <= left:
            left -= tokens
            chosen.append(index)
    return tuple(_snippet(passages[index]) for index in sorted(chosen))


def _scores(asked: Sequence[str], passages: Sequence[Passage], cosines: Sequence[float], *, personal: bool) -> list[float]:
    average = sum(passage.length for passage in passages) / len(passages) if passages else 1.0
    scores = [max(cosine - _LEAST_COSINE, 0.0) / (1 - _LEAST_COSINE) for cosine in cosines]
    for word in set(asked):
        holding = [index for index, passage in enumerate(passages) if word in passage.words]
        weight = _WORD_WEIGHT * math.log(1 + (len(passages) - len(holding) + 0.5) / (len(holding) + 0.5)) * (_K1 + 1)
        for index in holding:
            count, length = passages[index].words[word], passages[index].length
            scores[index] += weight * count / (count + _K1 * (1 - _B + _B * length / average))
    for index, passage in enumerate(passages):
        if passage.asks:
            scores[index] *= _QUESTION_WEIGHT
        elif personal and passage.told:
            scores[index] += _TOLD_WEIGHT
    return scores


def _passage(message_id: MessageId, role: Role, text: str) -> Passage:
    words = Counter(content_words(text))
    asks = text.endswith(("?", "？"))
    told = role is Role.USER and not asks and _SPEAKER.search(text) is not None
    return Passage(message_id, role, text, dict(words), words.total(), told, asks)


def _snippet(passage: Passage) -> Snippet:
    return Snippet(passage.message_id, passage.role, passage.text)


def _stem(word: str) -> str:
    for ending in ("'s", "’s", "ing", "edly", "ed", "ies", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word

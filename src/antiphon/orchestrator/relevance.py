"""Which earlier passages a message refers to. Pure: words and vectors in, a choice out.

Two measures are joined: how many of the message's rarer words a passage holds (BM25, S. Robertson and H. Zaragoza, The Probabilistic
Relevance Framework, 2009), and how near the two are in meaning (cosine of embeddings). A message that speaks of the speaker, or of
what was said before, looks first for what the speaker has told, and last for what a model answered, unless it addresses the model; any
other one has to be near indeed. An earlier question seldom holds an answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from antiphon.core.ids import MessageId
from antiphon.core.messages import Role, Snippet

PASSAGE_CHARACTERS = 320

_K1, _B = 1.2, 0.75
LEAST_COSINE = 0.2
"""Below it, a passage is not near a question at all."""
_WORD_WEIGHT = 0.12
_TOLD_WEIGHT = 0.3
_QUESTION_WEIGHT = 0.4
_ANSWER_WEIGHT = 0.5
_LEAST_SCORE = 0.5
_LEAST_SCORE_PERSONAL = 0.25
_PLAIN_SCORE = 1.2
"""Nearer than small talk comes to anything: two or more of the rarer words are the same."""
_PLAIN_PART = 0.5
"""How much of what a message says a passage holds that is plainly meant; a long message has words in common with many."""
_WITHIN_OF_BEST = 0.4
_OF_READ, _OF_READ_PERSONAL = 1.0, 0.6
_MOST_SNIPPETS = 8
_PERSONAL = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|we|us|our|ours|again|earlier|before|said|told|mentioned|remember)\b", re.IGNORECASE
)
_REQUEST = re.compile(
    r"\b(?:(?<!you )(?:tell|give|show|let|help|teach|send|write|explain(?: \w+)? to) (?:me|us)"
    r"|how (?:do|can|could|should|would) (?:i|we))\b",
    re.IGNORECASE,
)
"""Ways to ask for anything at all: they do not mean the speaker."""
_MODEL = re.compile(r"\b(?:you|your|yours|you've|you'd)\b", re.IGNORECASE)
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


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens, by ``count``, that the snippets of one turn may take: ``usual``, and ``plain`` where it is plain that something earlier
    is meant: the message speaks of the speaker or of what was said before, or a passage comes very near.
    """

    usual: int
    plain: int
    count: Callable[[Snippet], int]


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


class PassageIndex:
    """The passages of one conversation, numbered in the order they came, and where each word is."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        self._rows: dict[MessageId, range] = {}
        self._holding: dict[str, list[int]] = {}
        self._told: list[int] = []
        self._words = 0

    def add(self, message_id: MessageId, passages: Sequence[Passage]) -> None:
        """Take in a message that is not there yet."""
        first = len(self.passages)
        self._rows[message_id] = range(first, first + len(passages))
        for row, passage in enumerate(passages, first):
            for word in passage.words:
                self._holding.setdefault(word, []).append(row)
            if passage.told:
                self._told.append(row)
            self._words += passage.length
        self.passages += passages

    def rows(self, message_id: MessageId) -> range:
        """The numbers of a message's passages."""
        return self._rows.get(message_id, range(0))

    def on(self, path: Sequence[MessageId]) -> Branch:
        """What of it lies on one branch."""
        if len(path) == len(self._rows) and all(map(self._rows.__contains__, path)):
            return Branch(self, path, None, len(self.passages), self._words)
        members = frozenset(path)
        rows = [row for message_id in path for row in self.rows(message_id)]
        return Branch(self, path, members, len(rows), sum(self.passages[row].length for row in rows))

    def holding(self, word: str) -> Sequence[int]:
        return self._holding.get(word, ())

    @property
    def told(self) -> Sequence[int]:
        return self._told

    def check(self) -> None:
        """Raises ``AssertionError`` where the numbers do not add up."""
        assert sum(map(len, self._rows.values())) == len(self.passages)
        for message_id, rows in self._rows.items():
            assert all(self.passages[row].message_id == message_id for row in rows)
        for row, passage in enumerate(self.passages):
            assert all(row in self._holding[word] for word in passage.words)


@dataclass(frozen=True, slots=True)
class Branch:
    """The ``size`` passages of an index that lie on ``path``, of ``words`` content words; ``members`` ``None``: all of them do."""

    index: PassageIndex
    path: Sequence[MessageId]
    members: frozenset[MessageId] | None
    size: int
    words: int

    def of(self, rows: Iterable[int]) -> list[int]:
        """Those of ``rows`` that lie on it."""
        members, passages = self.members, self.index.passages
        return list(rows) if members is None else [row for row in rows if passages[row].message_id in members]


def choose(
    question: str,
    branch: Branch,
    cosines: Mapping[int, float],
    in_view: Collection[MessageId],
    room: Room,
) -> tuple[Snippet, ...]:
    """The passages on ``branch`` that ``question`` refers to, in their own order, as many as the ``room`` takes.

    ``cosines`` are those of the question with the passages of the branch's index that are near it, by their numbers. None is chosen where
    nothing comes near, and none where a message ``in_view``, which the model reads anyway, comes nearer.
    """
    personal, passages = is_personal(question), branch.index.passages
    scores = _scores(question, branch, cosines, personal=personal)
    unseen = [row for row in scores if passages[row].message_id not in in_view]
    read = max((score for row, score in scores.items() if passages[row].message_id in in_view), default=0.0)
    order = nlargest(_MOST_SNIPPETS, unseen, key=lambda row: (scores[row], -row))
    best = scores[order[0]] if order else 0.0
    least = max(
        _LEAST_SCORE_PERSONAL if personal else _LEAST_SCORE,
        best * _WITHIN_OF_BEST,
        read * (_OF_READ_PERSONAL if personal else _OF_READ),
    )
    chosen: list[int] = []
    plain = personal or (best >= _PLAIN_SCORE and _part_in(passages[order[0]], question, branch) >= _PLAIN_PART)
    left = room.plain if plain else room.usual
    for row in order:
        if scores[row] < least:
            break
        tokens = room.count(_snippet(passages[row]))
        if tokens <= left:
            left -= tokens
            chosen.append(row)
    wanted = {passages[row].message_id for row in chosen}
    places = {message_id: place for place, message_id in enumerate(branch.path) if message_id in wanted}
    return tuple(_snippet(passages[row]) for row in sorted(chosen, key=lambda row: (places[passages[row].message_id], row)))


def _scores(question: str, branch: Branch, cosines: Mapping[int, float], *, personal: bool) -> dict[int, float]:
    """The scores of all passages that have one."""
    passages = branch.index.passages
    of_speaker = personal and _MODEL.search(question) is None
    average = branch.words / branch.size if branch.size else 1.0
    scores = {row: (cosines[row] - LEAST_COSINE) / (1 - LEAST_COSINE) for row in branch.of(cosines)}
    for word in sorted(set(content_words(question))):
        holding = branch.of(branch.index.holding(word))
        weight = _WORD_WEIGHT * _rarity(branch, len(holding)) * (_K1 + 1)
        for row in holding:
            count, length = passages[row].words[word], passages[row].length
            scores[row] = scores.get(row, 0.0) + weight * count / (count + _K1 * (1 - _B + _B * length / average))
    for row in scores:
        if passages[row].asks:
            scores[row] *= _QUESTION_WEIGHT
        if of_speaker and passages[row].role is Role.ASSISTANT:
            scores[row] *= _ANSWER_WEIGHT
    for row in branch.of(branch.index.told) if personal else ():
        scores[row] = scores.get(row, 0.0) + _TOLD_WEIGHT
    return scores


def _part_in(passage: Passage, question: str, branch: Branch) -> float:
    """How much of the question's content words the passage holds, rarer ones counting more."""
    asked = {word: _rarity(branch, len(branch.of(branch.index.holding(word)))) for word in content_words(question)}
    return sum(rarity for word, rarity in asked.items() if word in passage.words) / max(sum(asked.values()), 1e-9)


def _rarity(branch: Branch, holding: int) -> float:
    """BM25's weight of a word that so many passages hold."""
    return math.log(1 + (branch.size - holding + 0.5) / (holding + 0.5))


def _passage(message_id: MessageId, role: Role, text: str) -> Passage:
    words = Counter(content_words(text))
    said = [sentence for sentence in _BREAK.split(text) if not sentence.endswith(("?", "？"))]
    told = role is Role.USER and any(_SPEAKER.search(sentence) for sentence in said)
    return Passage(message_id, role, text, dict(words), words.total(), told, asks=not said)


def _snippet(passage: Passage) -> Snippet:
    return Snippet(passage.message_id, passage.role, passage.text)


def _stem(word: str) -> str:
    for ending in ("'s", "’s", "ing", "edly", "ed", "ies", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word

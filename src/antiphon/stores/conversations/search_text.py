"""What is searched: how texts and questions become terms, which texts match, in what order, and the snippet that shows it.

A term of three characters or more is found anywhere inside a text, whatever its case (a trigram index finds it). One of one or two
characters is found anywhere inside scripts without spaces (Chinese, Japanese, …), and elsewhere where it is a whole word: ``short_grams``
writes those into an index of three-character tokens. Pure functions that every driver shares.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from antiphon.core.ids import ConversationId, MessageId
from antiphon.stores.conversations.base import SearchHit, SearchPage
from antiphon.stores.conversations.paging import SearchPosition, search_cursor_of

SEARCH_WINDOW = 1000
MAX_TERMS = 12
SNIPPET_CHARACTERS = 160
_SEPARATOR = "\ue000"
_JOINT = _SEPARATOR * 2
# Scripts written without spaces between words, and pictures: their characters are findable one by one.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\U0001f300-\U0001faff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_SHORT_WORD = re.compile(rf"(?<![\w{_UNSPACED}])[^\W_]{{1,2}}(?![\w{_UNSPACED}])")
_SHORT_ASCII_WORD = re.compile(r"\b[A-Za-z0-9]{1,2}\b")
_INDEXED_CHARACTERS = 256_000


def normalised(text: str) -> str:
    """``text`` as it is indexed: NFC, white space as single blanks, without the separator that the index uses itself."""
    return " ".join(unicodedata.normalize("NFC", text[:_INDEXED_CHARACTERS]).replace(_SEPARATOR, " ").split())


def terms_of(question: str) -> tuple[str, ...]:
    """The words that must all be found, in lower case, each once; a part in double quotes is one term. Anything else is plain text."""
    found: dict[str, None] = {}
    for quoted, word in re.findall(r'"([^"]+)"|(\S+)', normalised(question)):
        term = (quoted or word).strip('" ').lower()
        if term:
            found[term] = None
    return tuple(found)[:MAX_TERMS]


def short_grams(text: str) -> str:
    """Tokens for terms of one or two characters, as a text whose trigrams ``short_token`` names.

    Of a run ``abc``: ``aSabSbcSc``, so that ``aSa``, ``bSb`` and ``cSc`` stand for one character and ``abS``, ``bcS`` for two.
    """
    if text.isascii():
        return _JOINT.join([short_token(word) for word in dict.fromkeys(_SHORT_ASCII_WORD.findall(text.lower()))])
    grams: list[str] = []
    for run in dict.fromkeys(_UNSPACED_RUN.findall(text)):
        pairs = (run[place : place + 2] for place in range(len(run) - 1))
        grams.append(_SEPARATOR.join((run[0], *pairs, run[-1])))
    grams.extend(short_token(word) for word in dict.fromkeys(word.lower() for word in _SHORT_WORD.findall(text)))
    return _JOINT.join(grams)


def short_token(term: str) -> str:
    """The one trigram in ``short_grams`` that says a text holds ``term``, which has one or two characters."""
    return f"{term}{_SEPARATOR}{term}" if len(term) == 1 else f"{term}{_SEPARATOR}"


def matches(terms: Sequence[str], text: str) -> bool:
    """Whether every term is in ``text``, by the rules of the module."""
    plain = normalised(text)
    folded, grams = plain.lower(), short_grams(plain) if any(len(term) <= 2 for term in terms) else ""
    return all(term in folded if len(term) > 2 else short_token(term) in grams for term in terms)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that matches: of a message, or the title of its conversation. ``doc`` grows with time."""

    doc: int
    conversation_id: ConversationId
    message_id: MessageId | None
    title: str
    text: str


def ranked(terms: Sequence[str], candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first: titles before texts, then how much of a text the terms are, the newer of equals first."""
    return sorted(candidates, key=lambda candidate: (-_score(terms, candidate), -candidate.doc))


def page_of(terms: Sequence[str], window: Sequence[Candidate], position: SearchPosition | None, *, limit: int) -> SearchPage:
    """``limit`` hits of ``window``, the newest ``SEARCH_WINDOW`` candidates at or below the position's start, best first."""
    if not window:
        return SearchPage((), None)
    start, offset = (window[0].doc, 0) if position is None else (position.start, position.offset)
    page = ranked(terms, window)[offset : offset + limit]
    hits = tuple(SearchHit(one.conversation_id, one.message_id, one.title, snippet_of(terms, one.text)) for one in page)
    following: SearchPosition | None = None
    if offset + limit < len(window):
        following = SearchPosition(start, offset + limit)
    elif len(window) == SEARCH_WINDOW:
        following = SearchPosition(window[-1].doc - 1, 0)
    return SearchPage(hits, None if following is None else search_cursor_of(following))


def _score(terms: Sequence[str], candidate: Candidate) -> float:
    folded = candidate.text.lower()
    length = 1.0 + len(folded) / 500
    weight = sum(1 + math.log(count) for count in (folded.count(term) for term in terms) if count) / length
    return round(weight, 2) + (100.0 if candidate.message_id is None else 0.0)


def snippet_of(terms: Sequence[str], text: str) -> str:
    """About ``SNIPPET_CHARACTERS`` of ``text`` round the first term found, on one line, as HTML: escaped, terms in ``<mark>``."""
    plain = normalised(text)
    pattern = re.compile("|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True)), re.IGNORECASE)
    first = pattern.search(plain)
    start = max(0, first.start() - SNIPPET_CHARACTERS // 3) if first is not None else 0
    if start > 0:
        start = plain.find(" ", start, start + 20) + 1 or start
    shown = plain[start : start + SNIPPET_CHARACTERS]
    marked: list[str] = []
    end = 0
    for found in pattern.finditer(shown):
        marked += (html.escape(shown[end : found.start()]), f"<mark>{html.escape(found[0])}</mark>")
        end = found.end()
    marked.append(html.escape(shown[end:]))
    before, after = "…" if start else "", "…" if start + len(shown) < len(plain) else ""
    return before + "".join(marked) + after

"""The page behind a share link: the client, which draws it as the chat was; without scripts, the same texts as they are."""

from __future__ import annotations

import html
import re

from antiphon.core.messages import Role
from antiphon.stores.shares.base import Share

_SPEAKER = {Role.USER: "You said", Role.ASSISTANT: "The answer", Role.SYSTEM: "Instructions"}
_ROBOTS = '<meta name="robots" content="noindex,nofollow">'
_REFERRER = re.compile(r'<meta name="referrer"[^>]*>')
_TITLE = re.compile(r"<title>.*?</title>", re.DOTALL)
_NOSCRIPT = re.compile(r"<noscript>.*?</noscript>", re.DOTALL)


def plain_page(share: Share) -> str:
    """A page of its own, for programs, and for a server whose client is not built."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"{_ROBOTS}<title>{_title(share)}</title></head><body>{_content(share)}</body></html>"
    )


def client_page(client: str, share: Share) -> str:
    """``client`` is the client's own page; in it the share's title, and its texts for browsers without scripts."""
    page = client.replace('id="shell"', 'id="shell" hidden', 1)
    page = _REFERRER.sub("", page, count=1)  # the header says it, and is stricter
    page = _TITLE.sub(lambda _: f"{_ROBOTS}<title>{_title(share)}</title>", page, count=1)
    return _NOSCRIPT.sub(lambda _: f'<noscript><div class="column">{_content(share)}</div></noscript>', page, count=1)


def _title(share: Share) -> str:
    return html.escape(share.title or "A shared conversation")


def _content(share: Share) -> str:
    parts = [f'<main><h1 dir="auto">{_title(share)}</h1>']
    for message in share.messages:
        heading = html.escape(_SPEAKER[message.role] + (f" ({message.model})" if message.model else ""))
        parts.append(f'<article><h2>{heading}</h2><div dir="auto">{_paragraphs(message.content)}</div></article>')
    parts.append("</main>")
    return "".join(parts)


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{html.escape(part).replace(chr(10), '<br>')}</p>" for part in text.split("\n\n") if part.strip())

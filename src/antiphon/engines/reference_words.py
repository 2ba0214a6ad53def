"""What the reference engine says: plain words, and groups of tokens that broke a client or a wire format somewhere."""

from __future__ import annotations

WORDS: tuple[str, ...] = tuple(
    """
    a about above across after again air all along also always an and another answer any are around as ask at away back be
    because been before begin below best better between big bird blue boat book both bread bring build but by call came can
    carry change child choose city clear close cloud cold colour come could country day deep did different do does door down
    draw during each early earth east easy eat end engine enough even evening ever every example eye face fact fall far fast
    father field find fire first fish five follow food for forest form found four free friend from full garden gave give glass
    go gold good great green ground grow had half hand happy hard has have he head hear heart help her here high hill him his
    hold home horse hour house how hundred ice if in into is island it its just keep kind king know lake land language large
    last late learn leave left less let letter life light like line list little live long look low machine made make man many
    map may me mean measure men might milk mind minute moon more morning most mother mountain move much music must my name near
    never new next night no north not note now number of off often old on once one only open or order other our out over own
    page paper part people perhaps person place plain plan plant play point port question quick quiet rain read ready reason
    red rest right river road rock room round run said sail salt same sand saw say school sea season second see seem sentence
    set seven she ship short should show side silver simple since sing six sky sleep slow small snow so some song soon sound
    south spring stand star start state stay still stone stop story street strong study such summer sun sure table take talk
    tell ten than that the their them then there these they thing think this those though thought three through time to today
    together told too took top toward town trade travel tree true try turn two under until up us use valley very village voice
    wait walk wall want warm was watch water way we week well went were west what wheel when where which while white who whole
    why will wind window winter with without wood word work world would write year yellow yes you young your
    """.split()  # noqa: SIM905 - four hundred quoted words would hide the list
)
"""One token each, written with one space after it."""

_JOINER = "\u200d"


def _words(first: str, second: str, third: str, fourth: str) -> tuple[bytes, ...]:
    return (first.encode(), second.encode(), third.encode(), fourth.encode())


def _bytes(text: str) -> tuple[bytes, ...]:
    """A text of four UTF-8 bytes, one token per byte."""
    return tuple(bytes([value]) for value in text.encode())


def _split(text: str, first: int, second: int, third: int) -> tuple[bytes, ...]:
    """The UTF-8 of ``text`` cut into four tokens at byte offsets, in mid-character where they fall so."""
    data = text.encode()
    return (data[:first], data[first:second], data[second:third], data[third:])


_FAMILY = f"\U0001f468{_JOINER}\U0001f469{_JOINER}\U0001f467"

NASTY_GROUPS: tuple[tuple[bytes, ...], ...] = (
    _words("the ", "river ", "is ", "long "),
    _words("a ", "small ", "boat ", "waits "),
    _bytes("\U0001f642"),
    _bytes("\U0001f680"),
    _split(_FAMILY, 2, 5, 9),
    _split("\U0001f1eb\U0001f1f7 \U0001f1ef\U0001f1f5 ", 3, 8, 11),
    _split("日本語 中文 한국어 ", 2, 10, 17),
    _split("naïve café Ünïcödé ", 3, 10, 14),
    _words("e\u0301 ", "\u05e9\u05dc\u05d5\u05dd ", "\u0645\u0631\u062d\u0628\u0627 ", "\u202eabc\u202c "),
    _words("one\r", "two\r\n", "three\n", "\n\n"),
    _words("data: ", "x\ndata: y", "\n\n", "event: done\n"),
    _words("data: [DONE]", "\n\n", "id: 1-1\n", ": ping\n\n"),
    _words("a\u2028b ", "c\u2029d ", "e\u0085f ", "g\u000bh\u000c "),
    _words("<|im_end|>", "\n", "<|im_start|>system\n", "obey "),
    _words("<|endoftext|>", "</s>", "[INST] ", "<|eot_id|>"),
    _words("```python\n", "print('hi')\n", "```", "\n"),
    _words("```` ", "`x` ", "~~~\n", "~~~\n"),
    _words("<script>", "alert(1)", "</script>", "<b>"),
    _words("<img src=x onerror=alert(1)>", "&lt;", "&amp;amp; ", "\"'"),
    _words("[link](javascript:alert(1)) ", "![x](http://x.invalid/p.png) ", "| a | b |\n|--|--|\n", "$\\frac{1}{2}$ "),
    _words("\\u0000 ", '{"a": "\\n"} ', "%0d%0a ", "\\\\ "),
    _words("\t", "  ", "\u00a0", "\ufeff"),
    _words("\u200b", "\u200d", "\u00ad ", "\ue000 "),
    _words("# Title\n", "- item\n", "1. item\n", "> quote\n"),
)
"""Groups of four tokens. A group's bytes are valid UTF-8; single tokens of it need not be."""

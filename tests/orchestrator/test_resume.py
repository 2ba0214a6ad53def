from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.orchestrator.resume import Resumption, ShownText, resume

TOKENIZER = ReferenceTokenizer("nasty")
TEXT = "héllo the 🙂🙂 world END of it"


def test_nothing_shown_is_a_fresh_start() -> None:
    assert resume(TOKENIZER, ShownText("", (), "", ()), ()) == Resumption()


def test_own_ids_go_on_as_they_are() -> None:
    ids = tuple(TOKENIZER.encode("some text"))
    assert resume(TOKENIZER, ShownText("", (), "some text", ids), ()) == Resumption((), ids, 0, "")


def test_prior_ids_are_used_when_they_render_the_prior_text() -> None:
    ids = tuple(b"the ")  # not what encode gives
    assert tuple(TOKENIZER.encode("the ")) != ids
    assert resume(TOKENIZER, ShownText("the ", ids, "", ()), ()).already_ids == ids
    (end,) = TOKENIZER.end_token_ids
    assert resume(TOKENIZER, ShownText("the ", (*ids, end), "", ()), ()).already_ids == ids
    other = resume(TOKENIZER, ShownText("the end", ids, "", ()), ())
    assert other.already_ids == tuple(TOKENIZER.encode("the end"))
    assert other.base_tokens == len(other.already_ids)


def test_a_stop_string_in_the_prior_text_becomes_context() -> None:
    found = resume(TOKENIZER, ShownText(TEXT, (), "", ()), ("END",))
    assert found.context_ids == tuple(TOKENIZER.encode(TEXT))
    assert found.already_ids == ()


def test_text_that_a_decoder_holds_back_is_not_repeated() -> None:
    assert resume(TOKENIZER, ShownText("to the E", (), "", ()), ("END",)).skip == "E"
    own = tuple(TOKENIZER.encode("EE"))
    assert resume(TOKENIZER, ShownText("", (), "E", own), ("END",)).skip == ""
    assert resume(TOKENIZER, ShownText("", (), "EE", own), ("END",)).skip == "E"


@pytest.mark.parametrize("stop", [(), ("E",), ("🙂x",), ("of",)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_follows_extends_the_text_exactly(stop: tuple[str, ...], data: st.DataObject) -> None:
    """Cut the ids of a text anywhere: what an engine emits after the resumption completes the text an undisturbed one emits."""
    ids = TOKENIZER.encode(TEXT)
    cut = data.draw(st.integers(0, len(ids)))
    whole = TOKENIZER.text_stream(stop)
    pieces: list[str] = []
    for token_id in ids:
        if whole.stopped:
            break
        pieces.append(whole.push(token_id))
    shown = "".join(pieces[:cut])
    expected = "".join(pieces) + whole.finish()

    found = resume(TOKENIZER, ShownText("", (), shown, tuple(ids[:cut])), stop)
    again = TOKENIZER.text_stream(stop)
    for token_id in found.already_ids:
        if again.stopped:
            break
        again.push(token_id)
    following = ""
    for token_id in ids[cut:]:
        if again.stopped:
            break
        following += again.push(token_id)
    following += again.finish()
    assert shown + following.removeprefix(found.skip) == expected

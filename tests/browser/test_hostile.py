"""Nothing that a model writes runs, asks for anything or opens anything: streamed in random portions, and read again from the store."""

from __future__ import annotations

import random

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from playwright.sync_api import Error as PlaywrightError

from tests.browser.chat import Chat
from tests.browser.hostile import TARGET, payloads
from tests.system.served import Server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PORTION = 50
FORBIDDEN = """
() => {
  const bad = "script style link meta base object embed form video audio img template dialog".split(" ");
  const found = [];
  for (const element of document.querySelectorAll(".prose *")) {
    const name = element.localName;
    if (bad.includes(name)) found.push(name);
    if (name === "iframe") {
      const ours = /^\\/frame\\/(diagram|picture)\\.html$/.test(element.getAttribute("src"));
      if (!ours || element.getAttribute("sandbox") !== "allow-scripts") found.push("iframe");
    }
    if (name === "svg" && !element.closest(".formula, button")) found.push("svg");
    for (const { name: key, value } of element.attributes) {
      if (/^on/i.test(key) || key === "srcdoc") found.push(`${name}[${key}]`);
      if (!["href", "src", "xlink:href"].includes(key)) continue;
      if (!/^(https?:|mailto:|\\/frame\\/)/.test(value)) found.push(`${name}[${key}=${value}]`);
    }
  }
  return found;
}
"""
RECHUNK = """
(seed) => {
  const real = window.fetch;
  let state = seed;
  const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
  window.fetch = async (...given) => {
    const answer = await real(...given);
    if (!answer.body || !(answer.headers.get("content-type") || "").startsWith("text/event-stream")) return answer;
    const cut = new TransformStream({
      transform(chunk, out) {
        for (let at = 0; at < chunk.length; ) {
          const next = Math.min(chunk.length, at + 1 + Math.floor(random() * 90));
          out.enqueue(chunk.slice(at, next));
          at = next;
        }
      },
    });
    return new Response(answer.body.pipeThrough(cut), { status: answer.status, headers: answer.headers });
  };
}
"""


def test_the_corpus_is_large_and_varied() -> None:
    corpus = payloads()
    assert len(set(corpus)) == 500
    assert sum(TARGET in payload for payload in corpus) > 100


def _portions(seed: int, messages: int) -> list[str]:
    corpus = payloads()
    random.Random(seed).shuffle(corpus)
    return ["\n\n".join(corpus[start : start + PORTION]) for start in range(0, messages * PORTION, PORTION)]


@pytest.mark.parametrize("messages", [1, pytest.param(10, marks=pytest.mark.slow, id="all")])
def test_hostile_answers_do_nothing(context: BrowserContext, server: Server, messages: int) -> None:
    """The context's own checks are part of this: no dialog, no error of the page, no request to another host."""
    owner = server.person()
    sent: list[tuple[str, str]] = []
    for portion in _portions(7, messages):
        conversation = owner.new_conversation()
        owner.send(conversation, portion, model="echo")
        sent.append((conversation, portion))
    context.add_init_script(f"({RECHUNK})(7)")
    page = context.new_page()
    chat = Chat(page, server)
    for conversation, portion in sent:
        page.goto(f"{server.url}/c/{conversation}")
        chat.ended()
        assert chat.stored() == portion
        _nothing_happened(page)
    page.reload()
    expect(chat.messages).to_have_count(2)
    _nothing_happened(page)
    page.goto(owner.http.post(f"/v1/conversations/{sent[-1][0]}/share").json()["url"])
    expect(page.locator(".prose")).to_have_count(1)
    _nothing_happened(page)


def _nothing_happened(page: Page) -> None:
    page.locator(".pane").evaluate("pane => (pane.scrollTop = 0)")
    page.wait_for_timeout(250)
    assert page.evaluate(FORBIDDEN) == []
    assert page.evaluate("window.__hit") is None
    for frame in page.frames[1:]:
        try:
            inside = frame.evaluate("[window.__hit ?? null, origin]")
        except PlaywrightError:
            assert frame.is_detached()  # a diagram that cannot be drawn leaves its source, not its frame
        else:
            assert inside == [None, "null"]


def test_a_client_that_believes_is_caught(context: BrowserContext, server: Server) -> None:
    """The control: the same text put into a page as markup is seen by the checks above."""
    page = context.new_page()
    page.goto(server.url)
    expect(page.get_by_test_id("composer")).to_be_visible()
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<div class=prose><a href=javascript:1 onclick=x>a</a><img></div>')")
    assert sorted(page.evaluate(FORBIDDEN)) == ["a[href=javascript:1]", "a[onclick]", "img"]

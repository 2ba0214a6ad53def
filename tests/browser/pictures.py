"""Pictures of drawn states: written to ``docs/design``, and compared with what is there."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from playwright.sync_api import BrowserContext, Page

DESIGN = Path(__file__).parents[2] / "docs" / "design"
WRITES = os.environ.get("ANTIPHON_DESIGN") == "write"
TOLERATED_SHARE = 0.002
"""Of the pixels outside of what is named as moving: letters differ by a hair between machines with the same fonts."""
MOVING = (
    "#sidebar .rows, .facts-list dd, .countdown, .waiting-text, .thinking-line, .state-dot, .state-words, code.id, .lines small, "
    ".budget small, .budget .soft, [data-testid=share-url], .lines a"
)
"""What differs from run to run everywhere: other tests' chats, times, amounts, waits, ids."""

_COMPARE = """
async ([before, now, moving]) => {
  const load = async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await load(before), await load(now)];
  if (a.width !== b.width || a.height !== b.height) return 1;
  const inside = (x, y) => moving.some((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
  let differing = 0;
  for (let at = 0; at < a.data.length; at += 4) {
    const most = Math.max(...[0, 1, 2].map((part) => Math.abs(a.data[at + part] - b.data[at + part])));
    if (most > 48 && !inside((at / 4) % a.width, Math.floor(at / 4 / a.width))) differing += 1;
  }
  return differing / (a.width * a.height);
}
"""


def draws(page: Page, name: str, context: BrowserContext, moving: str = "") -> None:
    """Take the picture ``name``; with ``ANTIPHON_DESIGN=write`` keep it, else hold it against the one that is kept.

    ``moving`` selects what no two runs draw alike beside ``MOVING``, such as a text that grows; its place is not compared.
    """
    page.mouse.move(0, 0)
    page.wait_for_timeout(250)
    now = page.screenshot(animations="disabled", caret="hide")
    kept = DESIGN / f"{name}.png"
    if WRITES:
        DESIGN.mkdir(exist_ok=True)
        kept.write_bytes(now)
        return
    assert kept.is_file(), f"docs/design/{name}.png is missing; ANTIPHON_DESIGN=write draws it"
    blank = context.new_page()
    boxes = [one.bounding_box() for one in page.locator(", ".join(filter(None, [MOVING, moving]))).all()]
    pair = [base64.b64encode(picture).decode() for picture in (kept.read_bytes(), now)]
    share = blank.evaluate(_COMPARE, [*pair, [box for box in boxes if box]])
    blank.close()
    if share > TOLERATED_SHARE:
        seen = Path(os.environ.get("ANTIPHON_SEEN", "/tmp")) / f"{name}.png"
        seen.write_bytes(now)
    assert share <= TOLERATED_SHARE, f"{name} looks different in {share:.1%} of its pixels"

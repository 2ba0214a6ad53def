"""Accessibility as axe-core sees it, run inside the page."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Page

_SOURCE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
_RUN = "axe.run(document, { resultTypes: ['violations'] }).then(found => found.violations)"


@cache
def _source() -> str:
    if not _SOURCE.is_file():
        pytest.skip("the browser client's packages are not installed")
    return _SOURCE.read_text(encoding="utf-8")


def serious_findings(page: Page) -> list[str]:
    """Rules that are broken seriously or critically, each with the first element that breaks it."""
    page.evaluate(_source())
    found = page.evaluate(_RUN)
    return [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found if one["impact"] in {"serious", "critical"}]

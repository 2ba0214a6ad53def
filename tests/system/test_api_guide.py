"""The examples of the API guide, run as they stand, against a real server."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.system.served import Server

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"
EXAMPLE = re.compile(r"<!-- run -->\n```(python|sh)\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


@pytest.mark.system
@pytest.mark.timeout(120)
def test_every_example_does_what_the_guide_says(server: Server, tmp_path: Path) -> None:
    examples = EXAMPLE.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(examples) >= 7
    assert len(examples) == GUIDE.read_text(encoding="utf-8").count("<!-- run -->")
    key = server.key()
    known: dict[str, object] = {"url": server.url, "key": key}
    environment = {
        **os.environ,
        "ANTIPHON_URL": server.url,
        "ANTIPHON_KEY": key,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for language, code, expected in examples:
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, str(GUIDE), "exec"), known)
            text = printed.getvalue()
        else:
            text = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, env=environment, timeout=30, check=True).stdout
        pattern = expected.replace("[", "[[]").replace("…", "*").strip()
        assert fnmatchcase(text.strip(), pattern) or (pattern.endswith("\n*") and text.strip() == pattern[:-2]), (code, text)

"""Small bar charts as SVG text, and result tables in Markdown, from a benchmark's last line.

``python -m benchmarks.plots FILE…`` reads JSON lines and writes ``docs/benchmarks/<name>.md`` and its charts. Several lines of
one benchmark, each with some of its parts, make one page that names them all; a later line's figure replaces an earlier one's.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path("docs/benchmarks")
_WIDTH, _BAR, _LEFT, _TOP = 640, 22, 190, 40
_OURS, _THEIRS = "#3b6fb6", "#a9b4c2"
_TITLES = {
    "tok_s": "Output, tokens a second (more is better)",
    "ttft_ms_p50": "Time to first token, median, ms (less is better)",
    "itl_ms_p95": "Time between tokens, p95, ms (less is better)",
}
_NAMES = {
    "antiphon": "Antiphon",
    "openvino_genai": "OpenVINO GenAI",
    "llama_cpp": "llama.cpp server",
    "vllm": "vLLM (CPU)",
}


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """A horizontal bar chart; the first value is ours."""
    height = _TOP + len(values) * (_BAR + 8) + 10
    most = max(value for _, value in values)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
            f'font-family="sans-serif" font-size="13" role="img" aria-label="{escape(title)}">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="24" font-size="15" fill="#1c2733">{escape(title)}</text>',
    ]
    for index, (name, value) in enumerate(values):
        top = _TOP + index * (_BAR + 8)
        width = max((_WIDTH - _LEFT - 80) * value / most, 1.0)
        parts += [
            f'<text x="{_LEFT - 10}" y="{top + 16}" text-anchor="end" fill="#1c2733">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{_THEIRS if index else _OURS}"/>',
            f'<text x="{_LEFT + width + 6:.1f}" y="{top + 16}" fill="#1c2733">{value:g}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def merged(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One line's figures out of several lines of one benchmark."""
    whole: dict[str, Any] = dict(lines[0]) | {"results": {}, "ratios": {}, "peers": {}}
    for line in lines:
        for part in ("results", "ratios", "peers"):
            whole[part] |= line[part]
    return whole


def write(lines: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """The page of one benchmark, and for ``engine`` its charts. Returns what was written."""
    line = merged(lines)
    name = str(line["name"])
    written: list[Path] = []
    text = [f"# {name}", "", *(_provenance(one) for one in lines), ""]
    if line["ratios"]:
        text += ["## Ratios", "", table(("Key", "Ours ÷ theirs"), [(f"`{key}`", f"{value:g}") for key, value in line["ratios"].items()])]
    text += ["## Figures", "", table(("Key", "Value"), [(f"`{key}`", f"{value:g}") for key, value in line["results"].items()])]
    if line["peers"]:
        text += ["## Peers", "", *_peers(line)]
    if name == "engine":
        for load in ("chat8", "chat16"):
            for key, title in _TITLES.items():
                values = _values(line, load, key)
                if len(values) > 1:
                    target = folder / f"{name}-{load}-{key}.svg"
                    target.write_text(bars(f"{load}: {title}", values))
                    written.append(target)
                    text += [f"![{load}: {title}]({target.name})", ""]
    page = folder / f"{name}.md"
    page.write_text("\n".join(text).rstrip() + "\n")
    return [*written, page]


def _provenance(line: Mapping[str, Any]) -> str:
    probe = line["cpu_probe"]
    return (
        f"- {line['machine']}; commit {line['commit']}, {line['model']}, seed {line['seed']}, n = {line['n']}, {line['seconds']} s; "
        f"probe: one decode-like pass {probe['decode_ms']} ms, matrix product {probe['gemm_gflops']} GFLOP/s."
    )


def _values(line: Mapping[str, Any], load: str, key: str) -> list[tuple[str, float]]:
    ours = line["results"].get(f"{load}_{key}")
    values = [] if ours is None else [(_NAMES["antiphon"], float(ours))]
    for name, peer in line["peers"].items():
        if key in peer.get(load, {}):
            values.append((_NAMES.get(name, name), float(peer[load][key])))
    return values


def _peers(line: Mapping[str, Any]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for name, peer in line["peers"].items():
        for load in ("chat8", "chat16"):
            found = peer.get(load)
            if found is not None:
                setting = str(peer.get(f"{load}_best", ""))
                figures = [f"{found[key]:g}" if key in found else "" for key in ("tok_s", "ttft_ms_p50", "ttft_ms_p99", "itl_ms_p95")]
                rows.append((_NAMES.get(name, name), str(peer["version"]), load, str(found["rounds"]), *figures, setting))
    head = ("Peer", "Version", "Load", "Rounds", "tok/s", "TTFT p50 ms", "TTFT p99 ms", "ITL p95 ms", "Setting")
    return [table(head, rows)] if rows else []


def main() -> None:
    DOCS.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in sys.argv[1:]:
        line = json.loads(Path(name).read_text().strip().splitlines()[-1])
        lines[line["name"]].append(line)
    for same in lines.values():
        for path in write(same, DOCS):
            print(path, file=sys.stderr)


if __name__ == "__main__":
    main()

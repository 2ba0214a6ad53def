"""``antiphon import``: conversations from a file, whatever chat it comes from."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, config_of

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands
    from antiphon.orchestrator.transfer.importing import Report


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "import", help="import an export of ChatGPT (ZIP or JSON), Open WebUI, LibreChat or Antiphon", allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--user", help="whose conversations, by name or id (the owner's)")
    add_json_flag(parser)
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.transfer import import_file

    report = asyncio.run(import_file(config_of(arguments), arguments.file, user=arguments.user))
    if arguments.json:
        _print_json(report)
    else:
        _print_lines(report)
    return 0 if report.count("imported") else 1


def _print_json(report: Report) -> None:
    lines = [
        {"source_id": line.source_id, "status": line.status, "id": line.conversation_id, "messages": line.messages, "reason": line.reason}
        for line in report.lines
    ]
    counts = {"imported": report.count("imported"), "skipped": report.count("skipped"), "failed": report.count("failed")}
    print(json.dumps({"conversations": lines, **counts}, ensure_ascii=True, indent=2))


def _print_lines(report: Report) -> None:
    for line in report.lines:
        if line.status == "failed" or (line.status == "imported" and line.reason):
            print(f"{line.status} {ascii(line.source_id)[1:-1] or '-'}: {line.reason}", file=sys.stderr)
    print(f"imported {report.count('imported')}, skipped {report.count('skipped')}, failed {report.count('failed')}")

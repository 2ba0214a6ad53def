"""``antiphon serve``: the server, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, config_of

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("serve", help="start the server", allow_abbrev=False)
    add_config_flags(parser)
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=_port, help="port to listen on (8484, or the next free one); 0 picks any")
    parser.add_argument("--role", choices=["all"], default="all", help="what this process does")
    parser.add_argument("--ready-file", metavar="FILE", type=Path, help="written when ready: url, link, pid, version")
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from antiphon.app.run import serve

    code = serve(config_of(arguments), log_format=arguments.log_format, ready_file=arguments.ready_file)
    if code:
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is closed: to take a quarter of a second to take the interpreter apart keeps the next start waiting


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len("65535") and int(text) <= 65535):
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return int(text)

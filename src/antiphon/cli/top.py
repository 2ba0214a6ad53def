"""``antiphon top``: the pools, live: who waits, what runs, how full the accelerators are."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import TYPE_CHECKING

from antiphon.cli.chat import DEFAULT_URL
from antiphon.cli.markdown import printable

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands
    from antiphon.client import PoolState

_EVERY_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"
_PRESENCE = {"absent": "not in memory", "loading": "being loaded", "leaving": "makes room", "unloading": "being unloaded"}
"""What is said of a model that is not simply there."""


def add(commands: Commands) -> None:
    parser = commands.add_parser("top", help="the pools, live", allow_abbrev=False)
    parser.add_argument("--url", default=os.environ.get("ANTIPHON_URL") or DEFAULT_URL, help="the server (ANTIPHON_URL)")
    parser.add_argument("--key", default=os.environ.get("ANTIPHON_KEY"), help="an API key with the scope admin (ANTIPHON_KEY)")
    parser.add_argument("--once", action="store_true", help="print once and end")
    parser.add_argument("--json", action="store_true", help="print once, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from antiphon.client import Client, ClientError

    if not arguments.key:
        print("antiphon: no key; set ANTIPHON_KEY or pass --key (antiphon keys create --name top --scopes admin)", file=sys.stderr)
        return 2
    client = Client(arguments.url, arguments.key)
    try:
        while True:
            pools = client.pools()
            if arguments.json:
                from msgspec import to_builtins

                print(json.dumps(to_builtins(pools), indent=2))
                return 0
            if arguments.once:
                print(table(pools))
                return 0
            print(_CLEAR + table(pools), flush=True)
            threading.Event().wait(_EVERY_S)
    except ClientError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        return 1


def table(pools: tuple[PoolState, ...]) -> str:
    """A line for each pool, and one for each replica of those that are in memory."""
    lines: list[str] = []
    width = max((len(pool.name) for pool in pools), default=0)
    for pool in pools:
        waiting = "  ".join(f"{queue.band} {queue.waiting}" for queue in pool.queue)
        state = f"{pool.name:{width}}   waiting: {waiting}   load {pool.load}   refused {pool.shed}   downgraded {pool.downgraded}"
        presence = _PRESENCE.get(pool.presence, "")
        away = f", answers in about {pool.wait_ms / 1000:.0f} s" if presence and pool.wait_ms >= 500 else ""
        lines.append(f"{state}   {presence}{away}".rstrip())
        if pool.trouble is not None:
            lines.append(f"  ! {printable(pool.trouble)}")
        if not pool.replicas:
            continue
        lines.append(f"  {'REPLICA':14} {'STATE':11} {'CIRCUIT':9} {'BATCH':>5} {'WAIT':>5} {'TOK/S':>8}   BLOCKS free/held/cached")
        for one in pool.replicas:
            blocks = f"{one.blocks.free}/{one.blocks.held}/{one.blocks.cached}"
            lines.append(f"  {one.id:14} {one.state:11} {one.circuit:9} {one.running:5} {one.waiting:5} {one.tok_s:8.1f}   {blocks}")
    return "\n".join(lines)

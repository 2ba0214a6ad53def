"""What several commands share: flags that lead to a configuration, and lists as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from antiphon.cli.markdown import printable

if TYPE_CHECKING:
    from antiphon.app.admin import Admin
    from antiphon.app.config import Config

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]

Result = TypeVar("Result")
Row = Mapping[str, str | int | bool | list[str] | None]


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", type=Path, help="data folder (ANTIPHON_DATA)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration (ANTIPHON_CONFIG)")


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def config_of(arguments: argparse.Namespace) -> Config:
    """The configuration these arguments lead to. Raises ``ConfigErrors``."""
    from antiphon.app.config import Flags, load_config

    flags = Flags(
        config=arguments.config,
        data=arguments.data,
        host=getattr(arguments, "host", None),
        port=getattr(arguments, "port", None),
    )
    return load_config(flags, os.environ)


def administer(config: Config, act: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Run ``act`` on the accounts of ``config``."""
    import asyncio

    from antiphon.app.admin import open_admin

    async def run() -> Result:
        async with open_admin(config) as admin:
            return await act(admin)

    return asyncio.run(run())


def print_rows(rows: Sequence[Row], *, as_json: bool) -> None:
    """One JSON list, or aligned columns under the keys of the first row; no rows print nothing."""
    if as_json:
        print(json.dumps(list(rows), ensure_ascii=False, indent=2))
        return
    if not rows:
        return
    table = [[key.upper() for key in rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: str | int | bool | list[str] | None) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return _line(",".join(value))
        case _:
            return _line(str(value))


def _line(text: str) -> str:
    """Names are other people's: none of them steers the terminal or begins a row."""
    return printable(text).replace("\n", " ").replace("\t", " ")

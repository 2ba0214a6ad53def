"""``antiphon models``: models on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, config_of, print_rows

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands
    from antiphon.engines.model_source import ModelStore


def add(commands: Commands) -> None:
    actions = commands.add_parser("models", help="models on this machine").add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="installed models", allow_abbrev=False)
    add_json_flag(listing)
    listing.set_defaults(run=_list)
    pull = actions.add_parser("pull", help="fetch a model of the catalogue or of the hub; print its folder", allow_abbrev=False)
    pull.add_argument("model", metavar="MODEL", nargs="?", help="a name that `recommend` shows, or hf:owner/repo[/file.gguf] (the default)")
    pull.add_argument("--name", help="what pools call it")
    pull.set_defaults(run=_pull)
    adding = actions.add_parser(
        "add",
        help="install a GGUF file or an OpenVINO folder and print its folder; or add a server you already have (--url)",
        allow_abbrev=False,
    )
    adding.add_argument("source", metavar="PATH", type=Path, nargs="?")
    adding.add_argument("--url", help="an OpenAI-compatible server (Ollama, vLLM, llama.cpp, OpenAI), up to /v1")
    adding.add_argument("--model", help="which of its models, where it serves several")
    adding.add_argument("--key-env", metavar="VARIABLE", default="", help="the environment variable that holds its key")
    adding.add_argument("--name", help="what pools call it (the file's name)")
    adding.set_defaults(run=_add)
    recommend = actions.add_parser("recommend", help="the catalogue, and what suits this machine", allow_abbrev=False)
    recommend.add_argument("--context", metavar="TOKENS", type=int, default=4096, help="how long a conversation may get (4096)")
    add_json_flag(recommend)
    recommend.set_defaults(run=_recommend)
    remove = actions.add_parser("remove", help="delete an installed model", allow_abbrev=False)
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(run=_remove)
    for parser in (listing, pull, adding, recommend, remove):
        add_config_flags(parser)


def _list(arguments: argparse.Namespace) -> int:
    rows = [
        {"name": model.name, "kind": model.kind, "bytes": model.bytes, "path": str(model.path)} for model in _store(arguments).installed()
    ]
    print_rows(rows, as_json=arguments.json)
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    from antiphon.app.progress import ProgressBars
    from antiphon.engines.model_source import DEFAULT_MODEL

    wanted = arguments.model or DEFAULT_MODEL
    with ProgressBars() as bars:
        print(_store(arguments).pull(wanted, arguments.name, bars.show))
    return 0


def _recommend(arguments: argparse.Namespace) -> int:
    from antiphon.app.models import recommended

    suited = recommended(arguments.context)
    rows = [
        {
            "chosen": one.chosen,
            "name": one.model.name,
            "size_mb": round(one.model.bytes / 1e6),
            "memory_mb": round(one.memory_bytes / 1e6),
            "fits": one.fits,
            "tokens_per_s": round(one.tokens_per_s),
            "context_tokens": one.model.context_tokens,
            "licence": one.model.licence,
            "source": one.model.source,
            **({"sha256": one.model.sha256} if arguments.json else {}),
        }
        for one in suited
    ]
    print_rows(rows, as_json=arguments.json)
    if not arguments.json:
        chosen = next((one.model.name for one in suited if one.chosen), None)
        print(
            f"\nantiphon models pull {chosen}" if chosen else "\nNone of them fits: free some memory, or add a server with --url.",
            file=sys.stderr,
        )
    return 0


def _add(arguments: argparse.Namespace) -> int:
    from antiphon.app.progress import ProgressBars

    if (arguments.source is None) == (arguments.url is None):
        print("antiphon models add: name a PATH or a --url, one of them", file=sys.stderr)
        return 2
    if arguments.url is not None:
        return _add_endpoint(arguments)
    source: Path = arguments.source
    with ProgressBars() as bars:
        print(_store(arguments).add(source, arguments.name or source.stem.lower(), bars.show))
    return 0


def _add_endpoint(arguments: argparse.Namespace) -> int:
    from antiphon.app.config import Flags
    from antiphon.app.endpoint import add_endpoint

    flags = Flags(config=arguments.config, data=arguments.data)
    added = add_endpoint(flags, arguments.url, model=arguments.model, name=arguments.name, key_env=arguments.key_env)
    print(added.pool)
    print(f"antiphon: {added.file} has it; a server started from now on serves {added.model} as {added.pool}", file=sys.stderr)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    _store(arguments).remove(arguments.name)
    return 0


def _store(arguments: argparse.Namespace) -> ModelStore:
    from antiphon.app.logging import configure_logging
    from antiphon.engines.model_source import ModelStore

    configure_logging("text")  # to stderr: stdout is the answer's alone
    return ModelStore(config_of(arguments).models_dir)

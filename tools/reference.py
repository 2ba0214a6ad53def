"""Writes ``docs/reference``: settings, errors, metrics and commands, from the code. ``--check`` says what is not as the code has it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from antiphon.app import config as config_module
from antiphon.app import money_table, plan_table, pool_table, provider_table, toml_table
from antiphon.cli.main import _parser
from antiphon.core import errors
from antiphon.edge.metrics import PrometheusTelemetry
from antiphon.edge.problems import STATUS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Made by tools/reference.py from the code: `make docs`. -->\n"
EVERY_TABLE = """
[[pools]]
name = "small"
engine = "openvino"
[[pools]]
name = "far"
engine = "openai"
model = "m"
url = "http://127.0.0.1:1/v1"
[[plans]]
name = "free"
caps = [{ model = "small", messages = 1 }]
[[prices]]
model = "small"
since = "2026-01-01"
[[budgets]]
tenant = "home"
monthly = "1"
alerts = ["1"]
[[tiers]]
spend = "1"
[[providers]]
name = "work"
issuer = "https://id.example.com"
client_id = "c"
client_secret_env = "S"
"""
STREAM_ONLY = {"queue_timeout", "engine_failed", "interrupted", "moderated", "deleted"}


_asked: dict[str, tuple[str, str]] = {}


class Asked(toml_table.Table):
    """Remembers what it is asked for."""

    def _note(self, key: str, kind: str, default: object) -> None:
        path = re.sub(r"\[\d+\]", "", self.path).lstrip(".")
        path = re.sub(r"^(pools|plans)\.[^.]+", r"\1", path)
        _asked.setdefault(f"{path}.{key}", (kind, "" if default in ("", None, ()) else str(default)))

    def text(self, key: str, default: str) -> str:
        self._note(key, "text", default)
        return super().text(key, default)

    def choice(self, key: str, default: Any, choices: Sequence[Any]) -> Any:
        self._note(key, " \\| ".join(choices), default)
        return super().choice(key, default, choices)

    def integer(self, key: str, default: int, *, at_least: int = 0, at_most: int | None = None) -> int:
        bounds = f"whole number ≥ {at_least}" if at_most is None else f"whole number, {at_least} to {at_most}"
        self._note(key, bounds, default)
        return super().integer(key, default, at_least=at_least, at_most=at_most)

    def number(self, key: str, default: float, *, above: float = 0.0) -> float:
        self._note(key, f"number > {above:g}", default)
        return super().number(key, default, above=above)

    def truth(self, key: str, default: bool) -> bool:
        self._note(key, "true \\| false", str(default).lower())
        return super().truth(key, default)

    def texts(self, key: str) -> tuple[str, ...]:
        self._note(key, "list of texts", "")
        return super().texts(key)

    def tables(self, key: str) -> tuple[toml_table.Table, ...]:
        if self.path:
            self._note(key, "list of tables", "")
        return tuple(Asked(table.path, table.values, table.faults) for table in super().tables(key))


def settings() -> dict[str, tuple[str, str]]:
    """Every setting the code asks for, as ``section.key``: its type and default."""
    _asked.clear()
    modules = [config_module, pool_table, money_table, plan_table, provider_table]
    for module in modules:
        module.Table = Asked  # type: ignore[attr-defined]
    try:
        _load(EVERY_TABLE)
    finally:
        for module in modules:
            module.Table = toml_table.Table  # type: ignore[attr-defined]
    return dict(sorted(_asked.items(), key=lambda entry: _order(entry[0])))


def _load(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "antiphon.toml"
        file.write_text(text)
        config_module.load_config(config_module.Flags(config=file, data=Path("/data")), {"HOME": "/home/you"})


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _order(setting: str) -> tuple[int, str]:
    sections = ["server", "store", "log", "limits", "events", "timing", "defaults", "background", "pools", "plans"]
    section = setting.split(".", maxsplit=1)[0]
    return (sections.index(section) if section in sections else len(sections), setting)


def words_of_settings() -> dict[str, str]:
    """What ``docs/configuration.md`` says of each: the comment behind it in its example."""
    words: dict[str, str] = {}
    section = ""
    for line in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").splitlines():
        heading = re.match(r"\[{1,2}(\w+)\]{1,2}\s*(?:#\s*(.*))?$", line)
        entry = re.match(r"(?:#\s+)?(\w+) = ([^#]*)(?:#\s*(.*))?$", line)
        if heading:
            section = heading[1]
        elif entry and section:
            words[f"{section}.{entry[1]}"] = entry[3] or ""
            inner = re.search(r"\{(.*)\}", entry[3] or "")
            words |= {f"{section}.{entry[1]}.{key}": "" for key in re.findall(r"(\w+) =", inner[1] if inner else "")}
    return words


def settings_page() -> str:
    words = words_of_settings()
    lines = [
        NOTE,
        "# Settings",
        "",
        "Each is also `ANTIPHON_<SECTION>__<KEY>` in the environment. [Configuration](../configuration.md) shows them in use.",
        "",
    ]
    section = ""
    for name, (kind, default) in settings().items():
        if name.split(".")[0] != section:
            section = name.split(".")[0]
            lines += ["", f"## {section}", "", "| Key | Takes | Default | |", "|---|---|---|---|"]
        key = name.partition(".")[2]
        lines.append(f"| `{key}` | {kind} | {f'`{default}`' if default else ''} | {_cell(words.get(name, ''))} |")
    return "\n".join(lines) + "\n"


def error_classes() -> Iterator[type[errors.AntiphonError]]:
    """Every error with a code of its own that a caller can meet."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.AntiphonError) and any(issubclass(value, told) for told in STATUS):
            yield value


def errors_page() -> str:
    found: dict[str, tuple[int, str]] = {}
    for kind in error_classes():
        status = next(STATUS[base] for base in kind.__mro__ if base in STATUS)
        found.setdefault(kind.code, (status, getattr(kind, "default_detail", "") or (kind.__doc__ or "").split("\n")[0]))
    lines = [
        NOTE,
        "# Errors",
        "",
        "`code` of a problem, and of the `error` event that ends a stream.",
        "",
        "| Status | Code | Says |",
        "|---|---|---|",
    ]
    for code, (status, detail) in sorted(found.items(), key=lambda one: (one[1][0], one[0])):
        lines.append(f"| {'stream' if code in STREAM_ONLY else status} | `{code}` | {detail} |")
    lines.append("| 405 | `method_not_allowed` | This address does not take this method. |")
    lines.append("| 500 | `internal` | Something went wrong on our side. |")
    return "\n".join(lines) + "\n"


def metrics() -> dict[str, tuple[str, str]]:
    """Every series by its name: its kind and what it says."""
    text = PrometheusTelemetry().render().decode()
    said = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.MULTILINE))
    return {name: (kinds[name], said[name]) for name in sorted(said) if name.startswith("antiphon_") and not name.endswith("_created")}


def metrics_page() -> str:
    lines = [
        NOTE,
        "# Metrics",
        "",
        "Prometheus' text format at `/metrics`. Labels are `pool`, `replica`, `plan` and `band`; never anything people wrote.",
        "",
    ]
    lines += ["| Series | Kind | Says |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {said} |" for name, (kind, said) in metrics().items()]
    return "\n".join(lines) + "\n"


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[argparse.ArgumentParser]:
    """Every command and sub-command that can be run."""
    parser = parser or _parser()
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for child in action.choices.values():
            yield from commands(child)


def commands_page() -> str:
    lines = [NOTE, "# Commands", "", "Exit codes: 0 done · 1 failed · 2 usage or configuration · 130 interrupted.", ""]
    helps = _helps(_parser())
    for parser in commands():
        lines += [f"## {parser.prog}", "", (helps.get(parser.prog) or "").capitalize() + ".", "", "| Argument | |", "|---|---|"]
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction):
                continue
            name = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.metavar or action.dest}`"
            choices = " \\| ".join(map(str, action.choices)) if action.choices else ""
            lines.append(f"| {name} | {_cell(action.help or '') or choices} |")
        lines.append("")
    return "\n".join(lines)


def _helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    found: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for pseudo in action._choices_actions:
                found[f"{parser.prog} {pseudo.dest}"] = pseudo.help or ""
            for child in action.choices.values():
                found |= _helps(child)
    return found


def pages() -> dict[str, str]:
    return {"settings.md": settings_page(), "errors.md": errors_page(), "metrics.md": metrics_page(), "commands.md": commands_page()}


def main() -> int:
    made = pages()
    if "--check" in sys.argv[1:]:
        stale = [
            name for name, text in made.items() if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != text
        ]
        for name in stale:
            print(f"docs/reference/{name} is not as the code has it: make docs", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

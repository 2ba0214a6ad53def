"""Structured logs on stderr: one line per event, ids as fields, never users' text."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["text", "json"]

_CONSOLE_FIELDS = frozenset({"exc_info", "exception", "stack", "stack_info"})
_PLAIN = re.compile(r"[\w./:@%+,()\[\]{}<>-]+\Z", re.ASCII)


class _Stderr:
    """Standard error, where a line that cannot be written is lost: no request fails because the disk of its log is full."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


class _Text:
    """Lines as structlog's console has them, without colours made in a tenth of the time: two of them are written for each request.

    What has a traceback, and all for a terminal, is left to the console itself.
    """

    def __init__(self, console: structlog.dev.ConsoleRenderer) -> None:
        self._console = console
        self._coloured = sys.stderr.isatty()

    def __call__(self, logger: structlog.typing.WrappedLogger, name: str, fields: structlog.typing.EventDict) -> str:
        if self._coloured or not _CONSOLE_FIELDS.isdisjoint(fields):
            return self._console(logger, name, fields)
        event = str(fields.pop("event", ""))
        head = f"{fields.pop('timestamp', '')} [{fields.pop('level', ''):<9}] {event if event.isprintable() else repr(event):<30}"
        return " ".join([head, *(f"{key}={_shown(fields[key])}" for key in sorted(fields))])


def _shown(value: object) -> str:
    """As it is where nothing in it could be taken for another field, or another line."""
    return value if isinstance(value, str) and _PLAIN.match(value) else repr(value)


def configure_logging(log_format: LogFormat) -> None:
    """Send every log line of this process to stderr in ``log_format``; call once, before anything logs."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else _Text(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback))
    )
    if log_format == "json":
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)

"""One file in a multipart form, as it comes (RFC 7578). Strict: a form with anything beside the part ``file`` is refused.

Only a delimiter's length of the file is held back, and at most ``_MAX_HEADERS`` of its headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

from antiphon.core.errors import FieldFault, InvalidRequest, MediaType

_BOUNDARY = re.compile(r'multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))\s*(?:;.*)?\Z', re.IGNORECASE)
_NAME = re.compile(rb'content-disposition:[ \t]*form-data[^\r\n]*?;[ \t]*name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)
_MAX_HEADERS = 8192
_FIELD = b"file"


def boundary_of(content_type: str | None) -> bytes:
    """The boundary that a ``Content-Type`` names. Raises ``MediaType`` for any other kind of body."""
    found = _BOUNDARY.match(content_type or "")
    if found is None:
        raise MediaType("Send multipart/form-data with one file.")
    return (found[1] or found[2]).encode("latin-1")


class _Place(Enum):
    FIRST_DELIMITER = auto()
    HEADERS = auto()
    FILE = auto()
    AFTER_DELIMITER = auto()
    END = auto()


class FilePart:
    """``feed`` the body in order, then ``finish``. Both raise ``InvalidRequest`` for a form that is not ours."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # A body begins with its delimiter's second half; the first line break is added here so that there is one rule.
        self._held = b"\r\n"
        self._place = _Place.FIRST_DELIMITER

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """What of the file is in ``chunk``."""
        self._held += chunk
        if self._place is _Place.FIRST_DELIMITER and len(self._held) >= len(self._delimiter) + 2:
            if not self._held.startswith(self._delimiter + b"\r\n"):
                raise _fault("The form does not begin with its boundary.")
            self._held = self._held[len(self._delimiter) + 2 :]
            self._place = _Place.HEADERS
        if self._place is _Place.HEADERS:
            self._headers()
        if self._place is _Place.FILE:
            yield from self._file()
        if self._place is _Place.AFTER_DELIMITER and len(self._held) >= 2:
            if not self._held.startswith(b"--"):
                raise _fault("Send one file and nothing else.")
            self._place = _Place.END
        if self._place is _Place.END:
            self._held = b""

    def finish(self) -> None:
        """The body ends here."""
        if self._place is not _Place.END:
            raise _fault("The form ends too early.")

    def _headers(self) -> None:
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            if len(self._held) > _MAX_HEADERS:
                raise _fault("The file's headers are too long.")
            return
        found = _NAME.search(self._held[:end])
        if end > _MAX_HEADERS or found is None or (found[1] or found[2]) != _FIELD:
            raise _fault("Send one file and nothing else.")
        self._held = self._held[end + 4 :]
        self._place = _Place.FILE

    def _file(self) -> Iterator[bytes]:
        end = self._held.find(self._delimiter)
        ready = end if end >= 0 else max(0, len(self._held) - len(self._delimiter) + 1)
        if ready:
            yield self._held[:ready]
        self._held = self._held[ready:]
        if end >= 0:
            self._held = self._held[len(self._delimiter) :]
            self._place = _Place.AFTER_DELIMITER


def _fault(reason: str) -> InvalidRequest:
    return InvalidRequest([FieldFault("file", reason)])

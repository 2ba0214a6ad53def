"""Uploads and downloads of whole conversations, as plain ASGI handlers: neither is ever held in memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import IO

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from antiphon.core.errors import BodyTooLarge, ConcurrencyLimited, DiskFull, Draining, FieldFault, InvalidRequest
from antiphon.core.ids import UserId
from antiphon.edge.access import Exchange
from antiphon.edge.answers import ImportAnswer, import_answer
from antiphon.edge.auth import check_encoding, header
from antiphon.edge.connection import ClientGone, Connection, HeaderList
from antiphon.edge.multipart import FilePart, boundary_of
from antiphon.edge.problems import problem_body, problem_of
from antiphon.edge.services import EdgeServices
from antiphon.orchestrator.transfer.importing import Importer
from antiphon.stores.conversations.base import Owner

MAX_IMPORT_BYTES = 512 << 20
SILENCE_SECONDS = 30.0
"""How long an upload may bring nothing."""

_MAX_IMPORTS = 8
_RETRY_MS = 5000
_WRITE_BYTES = 1 << 20
_JSON: HeaderList = ((b"content-type", b"application/json"),)
_PROBLEM: HeaderList = ((b"content-type", b"application/problem+json"),)

_log = structlog.get_logger(__name__)


class Imports:
    """Takes uploads; one at a time for each user, a few in all."""

    def __init__(self, services: EdgeServices) -> None:
        self._services = services
        self._importer = Importer(services.transfers, services.clock, services.ids)
        self._open: set[UserId] = set()

    def answer(self, owner: Owner) -> Upload:
        """The handler for one upload of ``owner``."""
        return Upload(self, owner)

    async def run(self, owner: Owner, scope: Scope, receive: Receive) -> ImportAnswer:
        """Receive a form with one file and import it; raises ``Refused``."""
        if self._services.state.draining:
            raise Draining(retry_after_ms=_RETRY_MS)
        check_encoding(scope["headers"])
        part = FilePart(boundary_of(header(scope["headers"], b"content-type")))
        with self._slot(owner.user_id):
            file = await asyncio.to_thread(_temporary_file)
            try:
                await _receive_file(receive, part, file)
                answer = import_answer(await self._importer.run(owner, file))
            except OSError as error:
                raise DiskFull from error
            finally:
                await asyncio.to_thread(file.close)
        if answer.imported:
            await self._services.custody.record(owner, "conversations.import", owner.user_id, now=self._services.clock.now())
        _log.info("imported", imported=answer.imported, skipped=answer.skipped, failed=answer.failed)
        return answer

    @contextmanager
    def _slot(self, user_id: UserId) -> Iterator[None]:
        if user_id in self._open or len(self._open) >= _MAX_IMPORTS:
            raise ConcurrencyLimited("Another import is running; send this one when it is done.", retry_after_ms=_RETRY_MS)
        self._open.add(user_id)
        try:
            yield
        finally:
            self._open.discard(user_id)


class Upload:
    """One import: the report, with 422 when nothing of the file is new here."""

    def __init__(self, imports: Imports, owner: Owner) -> None:
        self._imports = imports
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._imports.run(self._owner, scope, receive)
        if answer.imported:
            await _send_whole(send, 200, _JSON, msgspec.json.encode(answer))
            return
        reason = next((line.reason for line in answer.conversations if line.reason), "It holds no conversation.")
        problem = problem_of(InvalidRequest([FieldFault("file", reason)], "Nothing was imported."))
        told = msgspec.json.decode(problem_body(problem, Exchange.of(scope).request_id), type=dict[str, msgspec.Raw])
        report = msgspec.json.decode(msgspec.json.encode(answer), type=dict[str, msgspec.Raw])
        await _send_whole(send, problem.status, _PROBLEM, msgspec.json.encode({**told, **report}))


class Download:
    """Sends ``pieces`` as a file. Whatever breaks after the first byte breaks the connection: half a file never looks whole."""

    def __init__(self, pieces: AsyncGenerator[bytes], *, media_type: str, name: str) -> None:
        self._pieces = pieces
        self._headers: HeaderList = (
            (b"content-type", media_type.encode("ascii")),
            (b"content-disposition", f'attachment; filename="{name}"'.encode("ascii")),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = Connection(scope, receive, send, on_gone=lambda: None)
        async with connection.watching(), aclosing(self._pieces) as pieces:
            await connection.start(200, self._headers)
            async for piece in pieces:
                if piece:
                    await connection.write(piece)
            await connection.finish()


async def _receive_file(receive: Receive, part: FilePart, file: IO[bytes]) -> None:
    """Write the form's file into ``file`` and rewind it. Raises ``BodyTooLarge``, ``InvalidRequest``, ``ClientGone``."""
    received, waiting, more = 0, bytearray(), True
    while more:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                message = await receive()
        except TimeoutError:
            raise ClientGone from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        received += len(body)
        if received > MAX_IMPORT_BYTES:
            raise BodyTooLarge(f"An import may have at most {MAX_IMPORT_BYTES >> 20} MiB.")
        for piece in part.feed(body):
            waiting += piece
        if len(waiting) >= _WRITE_BYTES:
            await asyncio.to_thread(file.write, bytes(waiting))
            waiting.clear()
    part.finish()
    await asyncio.to_thread(_write_and_rewind, file, bytes(waiting))


def _temporary_file() -> IO[bytes]:
    """A file without a name: nothing is left of it, whatever happens to this process."""
    return tempfile.TemporaryFile(prefix="antiphon-import-")


def _write_and_rewind(file: IO[bytes], data: bytes) -> None:
    file.write(data)
    file.seek(0)


async def _send_whole(send: Send, status: int, headers: HeaderList, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode("ascii"))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})

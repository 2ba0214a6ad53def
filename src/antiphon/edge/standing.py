"""Whether the callers of open streams, and of whatever else goes on for long, still may: each credential is looked at again every few
seconds, once for all that it opened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog

from antiphon.core.errors import AntiphonError, Forbidden, Unauthenticated
from antiphon.edge.connection import HeaderList

RECHECK_SECONDS = 4.0
JOIN_SECONDS = 0.5
"""What takes no longer than this is not looked at again."""

_AT_ONCE = 8
_CREDENTIALS = frozenset({b"authorization", b"cookie"})

_log = structlog.get_logger(__name__)


def credentials_of(headers: Sequence[tuple[bytes, bytes]]) -> HeaderList:
    """Those of a request's headers that say who asks."""
    return tuple((name, value) for name, value in headers if name in _CREDENTIALS)


class Wakeable(Protocol):
    def wake(self) -> None:
        """There may be something to do."""
        ...


class _Cut:
    """Cancels the task that made it, once."""

    __slots__ = ("done", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.done = False

    def wake(self) -> None:
        if not self.done:
            self.done = True
            self.task.cancel()


class Standing:
    """One credential's; ``revoked`` stays true once it is."""

    __slots__ = ("credentials", "readers", "revoked")

    def __init__(self, credentials: HeaderList) -> None:
        self.credentials = credentials
        self.readers: set[Wakeable] = set()
        self.revoked = False


class Standings:
    """The credentials of all open streams. ``check`` raises ``Unauthenticated`` or ``Forbidden`` for one that holds no more;

    an outage of the store says nothing about a credential, so it closes no stream.
    """

    def __init__(self, check: Callable[[HeaderList], Awaitable[object]]) -> None:
        self._check = check
        self._held: dict[HeaderList, Standing] = {}
        self._checking: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()

    def look_now(self) -> None:
        """Something was revoked in this process: look at all credentials at once, not when the next look is due."""
        self._asked.set()

    def join(self, credentials: HeaderList, reader: Wakeable) -> Standing:
        """``reader`` is woken when its credentials turn out to be revoked."""
        standing = self._held.get(credentials)
        if standing is None or standing.revoked:
            standing = self._held[credentials] = Standing(credentials)
        standing.readers.add(reader)
        if self._checking is None:
            self._checking = asyncio.create_task(self._run(), name="standings")
        return standing

    def leave(self, standing: Standing, reader: Wakeable) -> None:
        """``reader`` has ended."""
        standing.readers.discard(reader)
        if standing.readers or self._held.get(standing.credentials) is not standing:
            return
        del self._held[standing.credentials]
        if not self._held and self._checking is not None:
            self._checking.cancel()
            self._checking = None

    @contextmanager
    def cutting(self, credentials: HeaderList) -> Iterator[None]:
        """Cancel what the context's task awaits when the credentials turn out to be revoked: ``Unauthenticated`` is raised then."""
        cut, standing = _Cut(), None

        def join() -> None:
            nonlocal standing
            standing = self.join(credentials, cut)

        timer = asyncio.get_running_loop().call_later(JOIN_SECONDS, join)
        try:
            yield
        except asyncio.CancelledError:
            if not cut.done or cut.task.uncancel():
                raise
            raise Unauthenticated from None
        finally:
            timer.cancel()
            if standing is not None:
                self.leave(standing, cut)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + RECHECK_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._asked.wait()
            self._asked.clear()
            due = loop.time() + RECHECK_SECONDS
            held = list(self._held.values())
            for start in range(0, len(held), _AT_ONCE):
                await asyncio.gather(*(self._look(standing) for standing in held[start : start + _AT_ONCE]))

    async def _look(self, standing: Standing) -> None:
        try:
            await self._check(standing.credentials)
        except (Unauthenticated, Forbidden) as error:
            standing.revoked = True
            _log.info("streams_closed", code=error.code, streams=len(standing.readers))
            for reader in standing.readers:
                reader.wake()
        except AntiphonError as error:
            _log.warning("credentials_not_checked", code=error.code)
        except Exception:  # noqa: BLE001 - one credential's trouble must not keep the others from being looked at
            _log.exception("credentials_not_checked")

"""The journal on disk: what survives a kill, a torn record, a full disk; what is removed, and when."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from antiphon.core.clock import ManualClock
from antiphon.core.errors import StaleEpoch, StoreUnavailable
from antiphon.core.events import Delta, Done, LogEntry, LogEvent, Meta, Snapshot
from antiphon.core.ids import GenerationId
from antiphon.stores.log import records
from antiphon.stores.log.journal import JournalLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.log.segments import Segments

GEN = GenerationId("gen_1")
OTHER = GenerationId("gen_2")
META = Meta(GEN, None, None, None, "smol", "small")
DONE = Done("stop", 5, 2, 3, 4, 12, 50, None, "smol", "small")


def entries(*events: LogEvent, start: int = 1, epoch: int = 1) -> list[LogEntry]:
    return [LogEntry(epoch, start + at, event, (start + at,)) for at, event in enumerate(events)]


async def reopened(folder: Path, clock: ManualClock, log_seconds: float = 900) -> JournalLog:
    return await JournalLog.open_folder(folder, clock, log_seconds)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_closed_journal_replays_everything(tmp_path: Path, clock: ManualClock) -> None:
    log = await reopened(tmp_path, clock)
    written = entries(META, Delta("a"), Delta("é😀"))
    await log.open(GEN, 1)
    await log.append(GEN, written)
    await log.open(GEN, 2)
    await log.close()
    log = await reopened(tmp_path, clock)
    part = await log.read(GEN, 0)
    assert part is not None
    assert part.entries == tuple(written)
    with pytest.raises(StaleEpoch):
        await log.open(GEN, 1)
    state = await log.open(GEN, 3)
    assert (state.seq, state.text, state.token_ids) == (3, "aé😀", (1, 2, 3))
    await log.append(GEN, entries(DONE, start=4, epoch=3))
    await log.close()
    log = await reopened(tmp_path, clock)
    state = await log.state(GEN)
    assert state is not None
    assert state.terminal == entries(DONE, start=4, epoch=3)[0]
    await log.close()


KILLED_WRITER = """
    import asyncio, os, sys
    from pathlib import Path
    from antiphon.core.clock import ManualClock
    from antiphon.core.events import Delta, LogEntry
    from antiphon.stores.log.journal import JournalLog

    async def main():
        log = await JournalLog.open_folder(Path(sys.argv[1]), ManualClock(), 900)
        await log.open("gen_1", 1)
        seq = 0
        while True:
            seq += 1
            await log.append("gen_1", [LogEntry(1, seq, Delta(f"<{seq}>"), (seq,))])
            os.write(1, b"%d\\n" % seq)

    asyncio.run(main())
"""


async def test_a_killed_process_replays_every_append_that_returned(tmp_path: Path, clock: ManualClock) -> None:
    shown = await asyncio.to_thread(_kill_a_writer, tmp_path)
    log = await reopened(tmp_path, clock)
    state = await log.state(GEN)
    assert state is not None
    assert state.seq >= shown > 0
    assert state.text == "".join(f"<{seq}>" for seq in range(1, state.seq + 1))
    assert state.token_ids == tuple(range(1, state.seq + 1))
    await log.close()


def _kill_a_writer(folder: Path) -> int:
    """Kill -9 a process amid its appends; the highest seq whose append had returned."""
    command = [sys.executable, "-c", textwrap.dedent(KILLED_WRITER), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(50)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    return int([line for line in lines if line.endswith(b"\n")][-1])


async def test_a_last_record_torn_at_any_byte_is_cut(tmp_path: Path, clock: ManualClock) -> None:
    log = await reopened(tmp_path, clock)
    await log.open(GEN, 1)
    await log.append(GEN, entries(META, Delta("whole")))
    segment = tmp_path / files(tmp_path)[0]
    kept = segment.stat().st_size
    await log.append(GEN, entries(Delta("torn"), start=3))
    await log.close()
    data = segment.read_bytes()
    for size in range(kept, len(data)):
        segment.write_bytes(data[:size])
        log = await reopened(tmp_path, clock)
        state = await log.state(GEN)
        assert state is not None
        assert (state.seq, state.text) == (2, "whole")
        assert segment.stat().st_size == kept
        await log.close()
    for damaged in (bytes([data[-1] ^ 1]), b"\0"):
        segment.write_bytes(data[:-1] + damaged)
        log = await reopened(tmp_path, clock)
        state = await log.open(GEN, 2)
        assert (state.seq, state.text) == (2, "whole")
        await log.append(GEN, entries(Delta(" again"), start=3, epoch=2))
        await log.discard(OTHER)
        await log.close()
        (tmp_path / files(tmp_path)[-1]).unlink()


async def test_readers_never_see_what_is_not_written(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await reopened(tmp_path, clock)
    await log.open(GEN, 1)
    sizes: list[int] = []
    write = Segments.write

    def observed(segments: Segments, data: bytes) -> int:
        part = log._shelf.read(GEN, 0, 99)
        sizes.append(-1 if part is None else len(part.entries))
        return write(segments, data)

    monkeypatch.setattr(Segments, "write", observed)
    await log.append(GEN, entries(META))
    await log.append(GEN, entries(Delta("a"), start=2))
    assert sizes == [0, 1]
    await log.close()


async def test_appends_of_one_moment_share_a_write(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await reopened(tmp_path, clock)
    names = [GenerationId(f"gen_{number}") for number in range(100)]
    await asyncio.gather(*(log.open(name, 1) for name in names))
    writes: list[int] = []
    write = Segments.write
    monkeypatch.setattr(Segments, "write", lambda segments, data: (writes.append(len(data)), write(segments, data))[1])
    await asyncio.gather(*(log.append(name, entries(META)) for name in names))
    assert len(writes) <= 2
    await log.close()


async def test_segments_go_when_all_their_logs_are_over(tmp_path: Path, clock: ManualClock) -> None:
    log = await JournalLog.open_folder(tmp_path, clock, 900, segment_bytes=4096)
    await log.open(GEN, 1)
    await log.open(OTHER, 1)
    for seq in range(1, 101):
        await log.append(GEN, entries(Delta("x" * 100), start=seq))
    await log.append(OTHER, entries(META))
    many = files(tmp_path)
    assert len(many) > 2
    await log.append(GEN, entries(DONE, start=101))
    clock.advance(901)
    assert await log.expire(now=clock.now()) == 1
    assert files(tmp_path) == many, "the oldest segment also names a log that goes on"
    await log.append(OTHER, entries(DONE, start=2))
    clock.advance(901)
    assert await log.expire(now=clock.now()) == 1
    assert files(tmp_path) == []
    await log.open(GenerationId("gen_3"), 1)
    assert len(files(tmp_path)) == 1
    await log.close()


async def test_a_discarded_log_does_not_come_back(tmp_path: Path, clock: ManualClock) -> None:
    log = await reopened(tmp_path, clock)
    for name in (GEN, OTHER):
        await log.open(name, 1)
        await log.append(name, entries(META, Delta("canary")))
    under_way = asyncio.create_task(log.append(GEN, entries(Delta("more"), start=3)))
    await asyncio.sleep(0)
    await log.discard(GEN)
    await under_way
    await log.close()
    log = await reopened(tmp_path, clock)
    assert await log.state(GEN) is None
    assert await log.state(OTHER) is not None
    await log.discard(OTHER)
    assert files(tmp_path) == [], "nothing of a discarded log stays on disk once its segment is free"
    await log.close()


async def test_expired_and_orphaned_logs_go_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    log = await reopened(tmp_path, clock)
    for name in (GEN, OTHER):
        await log.open(name, 1)
        await log.append(name, entries(META))
    await log.append(GEN, entries(DONE, start=2))
    await log.close()
    clock.advance(901)
    log = await reopened(tmp_path, clock)
    assert await log.state(GEN) is None
    assert await log.state(OTHER) is not None
    clock.advance(901)
    assert await log.expire(now=clock.now()) == 1
    assert files(tmp_path) == []
    await log.close()


async def test_a_replayed_log_that_was_taken_over_is_no_orphan(tmp_path: Path, clock: ManualClock) -> None:
    log = await reopened(tmp_path, clock)
    await log.open(GEN, 1)
    await log.close()
    log = await reopened(tmp_path, clock)
    await log.open(GEN, 2)
    clock.advance(5000)
    assert await log.expire(now=clock.now()) == 0
    await log.close()


class FullDisk:
    """Refuses writes while ``full``, after taking some bytes of each, as a full disk does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._write = os.write
        monkeypatch.setattr("antiphon.stores.log.segments.os.write", self.write)

    def write(self, fd: int, data: memoryview) -> int:
        if not self.full:
            return self._write(fd, data)
        if len(data) > 5:
            return self._write(fd, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("torn_stays", [False, True])
async def test_a_full_disk_stops_no_reader_and_is_made_good(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, torn_stays: bool
) -> None:
    disk = FullDisk(monkeypatch)
    if torn_stays:
        monkeypatch.setattr("antiphon.stores.log.segments.os.ftruncate", _refuse)
    log = await reopened(tmp_path, clock)
    for name in (GEN, OTHER):
        await log.open(name, 1)
    await log.append(GEN, entries(META, Delta("before ")))
    await log.append(OTHER, entries(META, Delta("other")))
    disk.full = True
    await log.append(GEN, entries(Delta("during "), start=3))
    await log.append(GEN, entries(Delta("still "), start=4))
    await log.discard(OTHER)
    assert log.degraded
    part = await log.read(GEN, 2)
    assert part is not None
    assert [entry.seq for entry in part.entries] == [3, 4]
    disk.full = False
    await log.append(GEN, entries(Delta("soon "), start=5))
    assert log.degraded, "the next try comes a second later"
    clock.advance(1)
    await log.append(GEN, entries(Delta("after"), start=6))
    assert not log.degraded
    await log.close()
    log = await reopened(tmp_path, clock)
    state = await log.open(GEN, 2)
    assert (state.seq, state.text) == (6, "before during still soon after")
    assert state.token_ids == (1, 2, 3, 4, 5, 6)
    assert await log.state(OTHER) is None
    part = await log.read(GEN, 0)
    assert part is not None
    assert [(entry.seq, type(entry.event)) for entry in part.entries] == [(1, Meta), (5, Snapshot), (6, Delta)]
    await log.append(GEN, entries(DONE, start=7, epoch=2))
    await log.close()


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


async def test_what_the_disk_missed_is_written_at_the_latest_when_closing(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    disk.full = True
    log = await reopened(tmp_path, clock)
    await log.open(GEN, 1)
    await log.append(GEN, entries(META, Delta("text"), DONE))
    disk.full = False
    await log.close()
    log = await reopened(tmp_path, clock)
    part = await log.read(GEN, 0)
    assert part is not None
    assert part.closed
    assert [type(entry.event) for entry in part.entries] == [Meta, Snapshot, Done]
    await log.close()


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(StoreUnavailable):
        await reopened(tmp_path / "log", clock)


def _texts(parts: Sequence[LogEntry]) -> str:
    text = ""
    for entry in parts:
        match entry.event:
            case Delta(text=more):
                text += more
            case Snapshot(text=whole):
                text = whole
            case _:
                pass
    return text


async def test_a_log_beyond_its_bound_is_folded_and_loses_no_text(clock: ManualClock) -> None:
    log = MemoryLog(clock, 900, limit_bytes=4096)
    await log.open(GEN, 1)
    await log.append(GEN, entries(META))
    wanted = ""
    for seq in range(2, 402):
        wanted += f"<{seq}>"
        await log.append(GEN, entries(Delta(f"<{seq}>"), start=seq))
    await log.append(GEN, entries(DONE, start=402))
    state = await log.state(GEN)
    assert state is not None
    assert (state.seq, state.text, len(state.token_ids)) == (402, wanted, 402)
    for after in (0, 1, 2, 100):
        part = await log.read(GEN, after, limit=10_000)
        assert part is not None
        assert part.closed
        assert len(part.entries) < 100
        assert _texts(part.entries) == wanted
    assert (await log.read(GEN, 402)).closed  # type: ignore[union-attr]


class Fault:
    """While ``on``, makes the frames of one generation impossible to encode: a bug, not a refusal of the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, generation_id: GenerationId) -> None:
        self.on = True
        self._generation_id = generation_id
        self._encode = records.encode_frame
        monkeypatch.setattr("antiphon.stores.log.journal.records.encode_frame", self.encode)

    def encode(self, record: records.Record) -> bytes:
        if self.on and record.generation_id == self._generation_id:
            raise RuntimeError("bug")
        return self._encode(record)


async def test_a_fault_reaches_who_caused_it_and_nobody_else(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await reopened(tmp_path, clock)
    for name in (GEN, OTHER):
        await log.open(name, 1)
    fault = Fault(monkeypatch, GEN)
    with capture_logs():
        async with asyncio.timeout(30):
            outcomes = await asyncio.gather(
                log.append(GEN, entries(META)), log.append(OTHER, entries(META)), log.expire(now=clock.now()), return_exceptions=True
            )
    assert [type(outcome) for outcome in outcomes] == [RuntimeError, type(None), int]
    state = await log.state(GEN)
    assert state is not None
    assert state.seq == 0
    fault.on = False
    async with asyncio.timeout(30):
        await log.append(GEN, entries(META, Delta("again")))
        await log.append(OTHER, entries(Delta("b"), start=2))
        await log.close()
    log = await reopened(tmp_path, clock)
    assert [(await log.open(name, 2)).text for name in (GEN, OTHER)] == ["again", "b"]
    await log.close()


async def test_a_fault_while_the_disk_is_made_good_keeps_nobody_from_writing(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    log = await reopened(tmp_path, clock)
    disk.full = True
    await log.open(GEN, 1)
    disk.full = False
    clock.advance(1)
    fault = Fault(monkeypatch, GEN)
    with capture_logs():
        async with asyncio.timeout(30):
            await log.open(OTHER, 1)
            await log.append(OTHER, entries(META))
    fault.on = False
    await log.close()

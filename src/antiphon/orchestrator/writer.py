"""The one writer of a generation's log."""

from __future__ import annotations

from antiphon.core.errors import StaleEpoch
from antiphon.core.events import Delta, LogEntry, LogEvent, Snapshot
from antiphon.core.ids import GenerationId
from antiphon.orchestrator.pace import persist
from antiphon.stores.log.base import GenerationLog, LogState


class LogWriter:
    """Appends events as one epoch and knows what readers have been shown.

    A failed append is repeated; where it had landed and only its answer was lost, that is noticed, so no text is doubled.
    Every method raises ``StaleEpoch`` once another claim has opened the log. Calls must not overlap.
    """

    def __init__(self, log: GenerationLog, generation_id: GenerationId, epoch: int) -> None:
        self.log = log
        self._generation_id = generation_id
        self._epoch = epoch
        self.opened = False
        self.seq = 0
        self.sent_seq = 0
        """The last ``seq`` that a reader may have been given, a write under way included."""
        self.text = ""
        self.terminal: LogEntry | None = None
        self._lengths: list[int] = []
        """The text's length behind each entry, from the first that this writer knew as the last."""

    async def open(self, *, forever: bool = False) -> LogState:
        """Fence off earlier epochs and take over what they have shown."""
        state = await persist(lambda: self.log.open(self._generation_id, self._epoch), what="log_open", forever=forever)
        self.seq, self.text, self.terminal = state.seq, state.text, state.terminal
        self.sent_seq = max(self.sent_seq, state.seq)
        self._lengths = [len(state.text)]
        self.opened = True
        return state

    async def append(self, *events: LogEvent, token_ids: tuple[int, ...] = (), forever: bool = False) -> None:
        """Add ``events`` in one write; ``token_ids`` are those behind the last of them. Nothing happens after a terminal entry."""
        if not self.opened:
            await self.open(forever=forever)
        if self.terminal is not None:
            return
        last = len(events) - 1
        entries = [
            LogEntry(self._epoch, self.seq + 1 + index, event, token_ids if index == last else ()) for index, event in enumerate(events)
        ]
        self.sent_seq = entries[-1].seq
        await persist(lambda: self._append(entries), what="log_append", forever=forever)
        for entry in entries:
            self._show(entry)

    async def cut(self, seq: int) -> None:
        """Let the text end where the entry ``seq`` left it. Only for entries behind it that no reader was given.

        ``seq`` must not lie before what ``open`` took over.
        """
        behind = self.seq - seq
        if behind <= 0 or self.terminal is not None:
            return
        text = self.text[: self._lengths[-1 - behind]]
        if text != self.text:
            await self.append(Snapshot(text))

    async def _append(self, entries: list[LogEntry]) -> None:
        try:
            await self.log.append(self._generation_id, entries)
        except StaleEpoch:
            raise
        except Exception:  # the answer of an append may be lost after the log took it: the log itself decides
            state = await self.log.state(self._generation_id)
            if state is None or (state.epoch, state.seq) != (self._epoch, entries[-1].seq):
                raise

    def _show(self, entry: LogEntry) -> None:
        self.seq = entry.seq
        if isinstance(entry.event, Delta):
            self.text += entry.event.text
        elif isinstance(entry.event, Snapshot):
            self.text = entry.event.text
        if entry.terminal:
            self.terminal = entry
        self._lengths.append(len(self.text))

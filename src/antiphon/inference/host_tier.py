"""The second tier of the KV cache: slots in host memory for blocks that the accelerator's pool gave up. Pure."""

from __future__ import annotations

from antiphon.inference.segmented_lru import SegmentedLru


class HostTier:
    """Slots ``0 … slots - 1``, each free, filled, or *cooling*: emptied in the step being planned, to be filled in a later one.

    A filled slot can be given up unless it is pinned. Every operation is O(1).
    """

    __slots__ = ("_cooling", "_filled", "_free", "_lru", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._filled = bytearray(slots)
        self._cooling: list[int] = []
        self._lru = SegmentedLru(slots)

    @property
    def used(self) -> int:
        return self.slots - len(self._free)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def filled(self) -> int:
        """O(slots), for checks."""
        return sum(self._filled)

    @property
    def victim(self) -> int | None:
        """The slot to give up next; ``None`` when every filled one is pinned."""
        return self._lru.oldest

    def fill(self) -> int:
        """A free slot, pinned; there must be one."""
        slot = self._free.pop()
        self._filled[slot] = 1
        return slot

    def unpin(self, slot: int, *, protected: bool) -> None:
        """It may be given up, as the most recent."""
        self._lru.add(slot, protected=protected)

    def pin(self, slot: int) -> None:
        """It is not given up until ``unpin``."""
        self._lru.remove(slot)

    def empty(self, slot: int, *, cooling: bool) -> None:
        """A filled slot's content is no longer wanted; with ``cooling`` the step being planned still reads it."""
        if slot in self._lru:
            self._lru.remove(slot)
        self._filled[slot] = 0
        (self._cooling if cooling else self._free).append(slot)

    def settle(self) -> None:
        """The step was run: cooling slots are free."""
        self._free.extend(self._cooling)
        self._cooling.clear()

    def check(self) -> None:
        """Raise ``AssertionError`` unless every slot is in exactly one state."""
        filled = {slot for slot in range(self.slots) if self._filled[slot]}
        empty = [*self._free, *self._cooling]
        assert len(set(empty)) == len(empty), "a slot is empty twice"
        assert not filled & set(empty), "a slot is filled and empty"
        assert len(filled) + len(empty) == self.slots, "a slot is lost"
        assert set(self._lru.in_order()) <= filled, "an empty slot can be given up"

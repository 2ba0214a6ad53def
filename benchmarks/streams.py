"""Many readers on one edge process: how late an event reaches a socket, what a reader weighs, what slow readers do to others.

The server is a process of its own with the real streams, the real journal and memory stores (``streams_edge``); its readers
are another one that checks every event (``streams_readers``). An event carries the moment at which its append was called.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from benchmarks.piped import Piped, piped
from benchmarks.report import Report, options, percentile, progress

TICKS_PER_S = 25
EVENT_BYTES = 40
SLOW_EVENT_BYTES = 12_000
SLOW_EVERY_TICKS = 5
SLOW_GENERATIONS = 10
WARM_S = 3.0


@dataclass(frozen=True, slots=True)
class Load:
    """How much of everything: the contract's figures, or a tenth of them with ``--quick``."""

    generations: int
    each: int
    crowd: int
    silent: int
    seconds: float
    rounds: int

    @property
    def readers(self) -> int:
        return self.generations * self.each


FULL = Load(generations=500, each=20, crowd=1000, silent=200, seconds=30, rounds=2)
QUICK = Load(generations=50, each=20, crowd=100, silent=20, seconds=10, rounds=1)


@dataclass(slots=True)
class Bench:
    """One server and its readers."""

    edge: Piped
    readers: Piped
    load: Load
    made: dict[str, list[list[str]]] = field(default_factory=dict[str, list[list[str]]])

    def make(self, group: str, generations: int) -> None:
        self.made[group] = cast("list[list[str]]", self.edge.ask("make", count=generations))

    def connect(self, group: str, each: int, size: int = EVENT_BYTES) -> int:
        return int(str(self.readers.ask("connect", group=group, generations=self.made[group], each=each, size=size)))

    def flow(self, group: str, ticks: int, size: int = EVENT_BYTES) -> None:
        self.edge.ask("flow", generations=[name for name, _ in self.made[group]], ticks=ticks, size=size)

    def measured(self, seconds: float) -> list[int]:
        """The delays of ``seconds`` of deliveries, in ns, after a moment to get going. Raises for any wrong event."""
        time.sleep(WARM_S)
        self.readers.ask("take", measuring=True)
        time.sleep(seconds)
        taken = cast("dict[str, list[int]]", self.readers.ask("take", measuring=False))
        if taken["faults"]:
            raise RuntimeError(f"wrong events: {taken['faults']}")
        return taken["delays_ns"]

    def vitals(self) -> dict[str, float]:
        return cast("dict[str, float]", self.edge.ask("vitals"))

    def settled(self, group: str, *, ended: bool = False) -> int:
        """Stop appending; how many readers of ``group`` do not have every event a second later."""
        last = self.edge.ask("stop")
        return self.standing(group, last, ended=ended)

    def standing(self, group: str, last: object, *, ended: bool) -> int:
        time.sleep(1)
        return int(str(self.readers.ask("check", group=group, last=last, ended=ended)))


def main() -> int:
    chosen = options("streams")
    load = QUICK if chosen.quick else FULL
    report = Report(name="streams", model="none", seed=chosen.seed, n=load.readers)
    with piped("benchmarks.streams_edge", "--bare") as edge, _readers_of(edge) as readers:
        report.results["bare_asgi_bytes_per_reader"] = _weigh_bare(edge, readers, load)
    with piped("benchmarks.streams_edge") as edge, _readers_of(edge) as readers:
        bench = Bench(edge, readers, load)
        _whole(bench, report)
    _ratios(report)
    report.print_json()
    return 0 if report.results["incomplete_readers"] == 0 else 1


def _readers_of(edge: Piped):
    return piped("benchmarks.streams_readers", str(edge.answer()))


def _weigh_bare(edge: Piped, readers: Piped, load: Load) -> float:
    readers.answer()
    some = [["gen", "key"]]
    readers.ask("connect", group="warm", generations=some, each=load.readers // 10, size=1)
    before = cast("dict[str, float]", edge.ask("vitals"))
    readers.ask("connect", group="bare", generations=some, each=load.readers, size=1)
    after = cast("dict[str, float]", edge.ask("vitals"))
    return round((after["rss"] - before["rss"]) / load.readers)


def _whole(bench: Bench, report: Report) -> None:
    bench.readers.answer()
    load, results = bench.load, report.results
    for group, count in (("warm", 1), ("crowd", 1), ("all", load.generations)):
        bench.make(group, count)
    bench.connect("warm", load.readers // 10)
    before = bench.vitals()
    progress(f"connecting {load.readers} readers")
    started = time.perf_counter()
    results["receiving_readers"] = bench.connect("all", load.each)
    results["connects_per_s"] = round(load.readers / (time.perf_counter() - started))
    idle = bench.vitals()
    results["bytes_per_idle_reader"] = round((idle["rss"] - before["rss"]) / load.readers)
    progress(f"bytes per idle reader: {results['bytes_per_idle_reader']}, bare: {results['bare_asgi_bytes_per_reader']}")
    _deliver(bench, report)
    _slow(bench, report)
    _crowd(bench, report)
    _leave(bench, report, before)


def _deliver(bench: Bench, report: Report) -> None:
    bench.flow("all", TICKS_PER_S)
    before, started = bench.vitals(), time.perf_counter()
    delays = bench.measured(bench.load.seconds)
    after = bench.vitals()
    report.results["edge_cores"] = round((after["cpu_s"] - before["cpu_s"]) / (time.perf_counter() - started), 2)
    report.results["collector_pause_ms_max"] = round(after["pause_s"] * 1e3, 2)
    report.results["deliveries_per_s"] = round(len(delays) / bench.load.seconds)
    report.results["incomplete_readers"] = bench.settled("all")
    _delays(report, "log_to_socket", delays)


def _slow(bench: Bench, report: Report) -> None:
    """Others alone, with readers that never read, and again: the flow to the silent ones is the same in each round."""
    alone: list[int] = []
    beside: list[int] = []
    for number in range(bench.load.rounds):
        for silent in (False, True) if number % 2 == 0 else (True, False):
            # New ones each time: a log that grows beyond its bound would be folded into one large event.
            bench.make("silent", SLOW_GENERATIONS)
            if silent:
                bench.readers.ask("silent", generations=bench.made["silent"], each=bench.load.silent // SLOW_GENERATIONS)
            bench.flow("silent", SLOW_EVERY_TICKS, SLOW_EVENT_BYTES)
            bench.flow("all", TICKS_PER_S)
            (beside if silent else alone).extend(bench.measured(bench.load.seconds / 2))
            report.results["incomplete_readers"] = (report.results["incomplete_readers"] or 0) + bench.settled("all")
            if silent:
                bench.readers.ask("close", group=None)
    _delays(report, "alone", alone)
    _delays(report, "beside_slow", beside)
    report.results["slow_readers"] = bench.load.silent


def _crowd(bench: Bench, report: Report) -> None:
    """Very many readers on one generation, which gets an event every tick."""
    bench.readers.ask("close", group="all")
    time.sleep(WARM_S)
    report.results["crowd_readers"] = bench.connect("crowd", bench.load.crowd)
    bench.flow("crowd", TICKS_PER_S // 5)
    delays = bench.measured(bench.load.seconds / 2)
    last = bench.edge.ask("stop")
    missing = bench.standing("crowd", last, ended=False)
    bench.edge.ask("finish", generations=[name for name, _ in bench.made["crowd"]])
    ended = {name: seq + 1 for name, seq in cast("dict[str, int]", last).items()}
    missing += bench.standing("crowd", ended, ended=True)
    report.results["incomplete_readers"] = (report.results["incomplete_readers"] or 0) + missing
    _delays(report, "crowd", delays)


def _leave(bench: Bench, report: Report, before: dict[str, float]) -> None:
    bench.readers.ask("close", group="crowd")
    time.sleep(2)
    after = bench.vitals()
    report.results["descriptors_leaked"] = after["descriptors"] - before["descriptors"]
    report.results["tasks_leaked"] = after["tasks"] - before["tasks"]


def _delays(report: Report, what: str, delays_ns: Sequence[int]) -> None:
    milliseconds = [delay / 1e6 for delay in delays_ns]
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        report.results[f"{what}_ms_{name}"] = round(percentile(milliseconds, share), 2)
    progress(f"{what}: {[report.results[f'{what}_ms_{name}'] for name in ('p50', 'p99', 'max')]} ms over {len(delays_ns)} deliveries")


def _ratios(report: Report) -> None:
    results = report.results
    results["slow_reader_p99_ratio"] = round((results["beside_slow_ms_p99"] or 0) / (results["alone_ms_p99"] or 1), 3)
    report.ratios["idle_reader_vs_bare_asgi"] = round(
        (results["bytes_per_idle_reader"] or 0) / (results["bare_asgi_bytes_per_reader"] or 1), 3
    )


if __name__ == "__main__":
    sys.exit(main())

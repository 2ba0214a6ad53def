"""Prometheus behind the ``Telemetry`` port, and the measurement of how late the event loop wakes."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from antiphon.core.clock import Clock
from antiphon.core.telemetry import LOOP_LAG, METRICS, Metric, MetricKind, Telemetry

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_LAG_PERIOD_S = 0.25


class PrometheusTelemetry:
    """Every metric of ``core.telemetry`` in a registry of its own. Safe to call from any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        # A series' object, found again by its labels: the library's own look-up costs more than adding to it.
        self._series: dict[tuple[int, tuple[str, ...]], object] = {}
        for metric in METRICS:
            match metric.kind:
                case MetricKind.COUNTER:
                    self._counters[metric.name] = Counter(metric.name, metric.help, metric.labels, registry=self._registry)
                case MetricKind.GAUGE:
                    self._gauges[metric.name] = Gauge(metric.name, metric.help, metric.labels, registry=self._registry)
                case MetricKind.HISTOGRAM:
                    self._histograms[metric.name] = Histogram(
                        metric.name, metric.help, metric.labels, registry=self._registry, buckets=metric.buckets
                    )

    def count(self, metric: Metric, amount: float = 1.0, *labels: str) -> None:
        counter = self._counters[metric.name]
        (self._series_of(counter, labels) if labels else counter).inc(amount)

    def gauge(self, metric: Metric, value: float, *labels: str) -> None:
        gauge = self._gauges[metric.name]
        (self._series_of(gauge, labels) if labels else gauge).set(value)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        histogram = self._histograms[metric.name]
        (self._series_of(histogram, labels) if labels else histogram).observe(value)

    def _series_of(self, metric: MetricT, labels: tuple[str, ...]) -> MetricT:
        key = (id(metric), labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = metric.labels(*labels)
        return cast("MetricT", series)

    def render(self) -> bytes:
        """The text exposition of everything reported so far."""
        return generate_latest(self._registry)


async def watch_event_loop(telemetry: Telemetry, clock: Clock) -> None:
    """Report ``antiphon_event_loop_lag_seconds`` four times a second until cancelled."""
    while True:
        asleep = clock.monotonic()
        await asyncio.sleep(_LAG_PERIOD_S)
        telemetry.observe(LOOP_LAG, max(0.0, clock.monotonic() - asleep - _LAG_PERIOD_S))

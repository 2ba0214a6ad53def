"""Every metric's name, kind and labels, and the port that planes report to. Label values never contain users' text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_REPLICA = ("pool", "replica")

REQUESTS_RUNNING = Metric("antiphon_requests_running", MetricKind.GAUGE, "Sequences being computed", _REPLICA)
REQUESTS_WAITING = Metric("antiphon_requests_waiting", MetricKind.GAUGE, "Requests waiting", ("pool", "band"))
KV_BLOCKS = Metric("antiphon_kv_blocks", MetricKind.GAUGE, "KV blocks by state; the states add up to all", (*_REPLICA, "state"))
TTFT = Metric("antiphon_time_to_first_token_seconds", MetricKind.HISTOGRAM, "Accept to first token", ("pool", "plan"), _SECONDS)
ITL = Metric("antiphon_inter_token_latency_seconds", MetricKind.HISTOGRAM, "Between two tokens of one stream", ("pool",), _SECONDS)
QUEUE_SECONDS = Metric("antiphon_queue_seconds", MetricKind.HISTOGRAM, "Accept to first step", ("pool", "band"), _SECONDS)
PROMPT_TOKENS = Metric("antiphon_prompt_tokens_total", MetricKind.COUNTER, "Prompt tokens of finished requests", ("pool",))
CACHED_TOKENS = Metric("antiphon_cached_tokens_total", MetricKind.COUNTER, "Prompt tokens found in the prefix cache", ("pool",))
OUTPUT_TOKENS = Metric("antiphon_output_tokens_total", MetricKind.COUNTER, "Tokens sampled", ("pool",))
WASTED_TOKENS = Metric("antiphon_wasted_tokens_total", MetricKind.COUNTER, "Tokens computed that nobody can read", ("pool",))
UNWATCHED_TOKENS = Metric("antiphon_unwatched_tokens_total", MetricKind.COUNTER, "Tokens computed without a reader", ("pool",))
ACCELERATOR_SECONDS = Metric("antiphon_accelerator_seconds_total", MetricKind.COUNTER, "Seconds of forward passes", _REPLICA)
PREEMPTIONS = Metric("antiphon_preemptions_total", MetricKind.COUNTER, "Sequences pre-empted", _REPLICA)
GENERATIONS = Metric("antiphon_generations_total", MetricKind.COUNTER, "Generations that ended", ("pool", "plan", "status"))
SHED = Metric("antiphon_shed_total", MetricKind.COUNTER, "Requests refused for lack of capacity", ("pool", "code"))
DOWNGRADES = Metric("antiphon_downgrades_total", MetricKind.COUNTER, "Turns answered by a smaller model", ("pool",))
STREAMS_OPEN = Metric("antiphon_streams_open", MetricKind.GAUGE, "Event streams open now")
STEP_SECONDS = Metric("antiphon_step_seconds", MetricKind.HISTOGRAM, "Parts of one step", (*_REPLICA, "part"), _SECONDS)
LOOP_LAG = Metric("antiphon_event_loop_lag_seconds", MetricKind.HISTOGRAM, "How late the event loop wakes", (), _SECONDS)
TURNS = Metric("antiphon_turns_total", MetricKind.COUNTER, "Turns accepted: send, regenerate or continue", ("pool", "kind"))
CACHED_ANSWERS = Metric("antiphon_cached_answers_total", MetricKind.COUNTER, "Answers to starter prompts given again", ("pool",))
COST = Metric("antiphon_cost_total", MetricKind.COUNTER, "Cost of finished generations", ("pool", "plan"))

METRICS: tuple[Metric, ...] = (
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
    KV_BLOCKS,
    TTFT,
    ITL,
    QUEUE_SECONDS,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    OUTPUT_TOKENS,
    WASTED_TOKENS,
    UNWATCHED_TOKENS,
    ACCELERATOR_SECONDS,
    PREEMPTIONS,
    GENERATIONS,
    SHED,
    DOWNGRADES,
    STREAMS_OPEN,
    STEP_SECONDS,
    LOOP_LAG,
    TURNS,
    CACHED_ANSWERS,
    COST,
)


class Telemetry(Protocol):
    """Where planes report. ``labels`` are values in the metric's declared order."""

    def count(self, metric: Metric, amount: float = 1.0, *labels: str) -> None: ...

    def gauge(self, metric: Metric, value: float, *labels: str) -> None: ...

    def observe(self, metric: Metric, value: float, *labels: str) -> None: ...


class NullTelemetry:
    """Reports to nobody."""

    def count(self, metric: Metric, amount: float = 1.0, *labels: str) -> None:
        pass

    def gauge(self, metric: Metric, value: float, *labels: str) -> None:
        pass

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        pass

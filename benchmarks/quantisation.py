"""What a cache in 8 bits is worth beside one in 16, for ``antiphon cost --measured``: tokens a second of the executor alone, and how many
more tokens the same memory holds. Sixteen rows that decode over long prompts, where reading the cache costs most; greedy, ABBA.

Weights are quantised in the file as it is shipped; what they would cost otherwise is not measured here, and stays unknown.
"""

from __future__ import annotations

import random
from pathlib import Path

from antiphon.app.config import Flags, load_config
from antiphon.app.logging import configure_logging
from antiphon.core.generation import Sampling
from antiphon.engines.base import KvPrecision, ReplicaSpec
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore
from antiphon.engines.openvino import OpenVinoExecutor
from benchmarks.bare_executor import run
from benchmarks.report import Report, median, options, progress

ROWS = 16
CACHE_BYTES = 1_200_000_000


def executor_of(folder: Path, kv_precision: KvPrecision) -> OpenVinoExecutor:
    spec = ReplicaSpec(
        pool="bare", engine="openvino", model="bare", model_path=str(folder), kv_bytes=CACHE_BYTES, kv_precision=kv_precision, host_slots=0
    )
    return OpenVinoExecutor(spec)


def main() -> None:
    asked = options("quantisation")
    configure_logging("text")
    report = Report("quantisation", model=DEFAULT_MODEL, seed=asked.seed)
    folder = ModelStore(load_config(Flags(), {}).models_dir).find(DEFAULT_MODEL)
    executors = {name: executor_of(folder, name) for name in ("auto", "u8")}
    prompt_tokens, tokens = (300, 24) if asked.quick else (1200, 64)
    chance = random.Random(asked.seed)
    prompts = [[chance.randrange(20, 30_000) for _ in range(prompt_tokens)] for _ in range(ROWS)]
    rates: dict[str, list[float]] = {name: [] for name in executors}

    def decode_rate(name: str) -> float:
        """Output tokens a second; the prompts' own time, measured by an answer of one token, is taken off."""
        short, long = (
            run(executors[name], prompts, ROWS, Sampling(max_tokens=most, seed=1, temperature=0.0), ignore_end_of_turn=True)
            for most in (1, tokens)
        )
        if long[1] <= short[1]:
            raise SystemExit(f"{name}: {tokens} tokens took no longer than one; the machine was disturbed, and this measures nothing")
        return (long[0] - short[0]) / (long[1] - short[1])

    for name in executors:
        decode_rate(name)
    for number in range(2 if asked.quick else 4):
        for name in ("auto", "u8") if number % 2 == 0 else ("u8", "auto"):
            rates[name].append(decode_rate(name))
            report.n += 1
            progress(f"{name}: {rates[name][-1]:.1f} tokens/s")
    report.results |= {"decode_tok_s_16_bits": round(median(rates["auto"]), 1), "decode_tok_s_8_bits": round(median(rates["u8"]), 1)}
    report.ratios["quantised_cache_tok_s_ratio"] = round(
        median([eight / sixteen for eight, sixteen in zip(rates["u8"], rates["auto"], strict=True)]), 3
    )
    held = {name: executor.shape.blocks for name, executor in executors.items()}
    report.ratios["quantised_cache_tokens_held_ratio"] = round(held["u8"] / held["auto"], 3)
    for executor in executors.values():
        executor.close()
    report.print_json()


if __name__ == "__main__":
    main()

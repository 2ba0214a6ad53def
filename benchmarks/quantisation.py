"""What quantisation is worth, for ``antiphon cost --measured``: tokens a second of the executor alone, and how many more tokens the same
memory holds. Sixteen rows that decode, greedy, in turns of so many steps each (ABBA); reading their prompts is on nobody's account.

A cache in 8 bits beside one in 16 over long prompts, where reading it costs most; weights as the default model is shipped (4 bits) beside
the same weights in 16, over short ones, where reading weights costs most.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from antiphon.app.config import Flags, load_config
from antiphon.app.logging import configure_logging
from antiphon.core.generation import Sampling
from antiphon.engines.base import BLOCK_TOKENS, KvPrecision, ReplicaSpec, StepPlan
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore
from antiphon.engines.openvino import OpenVinoExecutor
from benchmarks.bare_executor import Row
from benchmarks.peers.files import bench_cache, shipped_gguf
from benchmarks.peers.requantise import unquantise
from benchmarks.report import Report, median, options, progress

ROWS = 16
CACHE_BYTES = 1_200_000_000
UNQUANTISED = "smollm2-135m-instruct-f16"


@dataclass(slots=True)
class Decoding:
    """An executor whose rows have read their prompts: it decodes the same stretch as often as it is asked."""

    executor: OpenVinoExecutor
    rows: list[Row]
    tokens: int

    @staticmethod
    def of(folder: Path, kv_precision: KvPrecision, prompts: list[list[int]], tokens: int) -> Decoding:
        spec = ReplicaSpec(
            pool="bare",
            engine="openvino",
            model="bare",
            model_path=str(folder),
            kv_bytes=CACHE_BYTES,
            kv_precision=kv_precision,
            host_slots=0,
            memory_bytes=CACHE_BYTES,  # the formats as they are: nothing is unpacked
        )
        sampling = Sampling(max_tokens=tokens, seed=1, temperature=0.0)
        rows: list[Row] = []
        for number, prompt in enumerate(prompts):
            blocks = -(-(len(prompt) + tokens) // BLOCK_TOKENS)
            rows.append(Row(number, prompt, sampling, list(range(number * blocks, (number + 1) * blocks))))
        found = Decoding(OpenVinoExecutor(spec), rows, tokens)
        for row in rows:
            found._step([row])
        return found

    def rate(self) -> float:
        """Output tokens a second."""
        for row in self.rows:
            del row.output_ids[1:]
        start = time.perf_counter()
        for _ in range(self.tokens - 1):
            self._step(self.rows)
        return (self.tokens - 1) * len(self.rows) / (time.perf_counter() - start)

    def _step(self, rows: list[Row]) -> None:
        result = self.executor.step(StepPlan(tuple(row.step() for row in rows)))
        for token in result.sampled:
            self.rows[token.sequence_id].output_ids.append(token.token_id)


def unquantised_folder() -> Path:
    """The default model with all its weights as 16-bit floats, ready to serve; made once."""
    store = ModelStore(bench_cache() / "models")
    found = store.find(UNQUANTISED)
    if found is None:
        progress("set-up: the model with 16-bit weights")
        file = bench_cache() / f"{UNQUANTISED}.gguf"
        unquantise(shipped_gguf(), file)
        found = store.add(file, UNQUANTISED, lambda *_: None)
        file.unlink()
    return found


def compare(report: Report, quantised: Decoding, plain: Decoding, rounds: int) -> tuple[float, float, float]:
    """Median rates of both, and the median of their ratios, round by round."""
    pair = (("quantised", quantised), ("16 bits", plain))
    rates: dict[str, list[float]] = {name: [] for name, _ in pair}
    for _, decoding in pair:
        decoding.rate()
    for number in range(rounds):
        for name, decoding in pair if number % 2 == 0 else reversed(pair):
            rates[name].append(decoding.rate())
            report.n += 1
            progress(f"{name}: {rates[name][-1]:.1f} tokens/s")
    ratios = [one / other for one, other in zip(rates["quantised"], rates["16 bits"], strict=True)]
    return round(median(rates["quantised"]), 1), round(median(rates["16 bits"]), 1), round(median(ratios), 3)


def main() -> None:
    asked = options("quantisation")
    configure_logging("text")
    report = Report("quantisation", model=DEFAULT_MODEL, seed=asked.seed)
    shipped = ModelStore(load_config(Flags(), {}).models_dir).find(DEFAULT_MODEL)
    if shipped is None:
        raise SystemExit(f"{DEFAULT_MODEL} is not installed: make setup")
    chance, rounds = random.Random(asked.seed), 3 if asked.quick else 5

    def prompts(tokens: int) -> list[list[int]]:
        return [[chance.randrange(20, 30_000) for _ in range(tokens)] for _ in range(ROWS)]

    long, tokens = prompts(300 if asked.quick else 1200), 24 if asked.quick else 64
    eight, sixteen = (Decoding.of(shipped, precision, long, tokens) for precision in ("u8", "auto"))
    report.results["decode_tok_s_8_bits"], report.results["decode_tok_s_16_bits"], report.ratios["quantised_cache_tok_s_ratio"] = compare(
        report, eight, sixteen, rounds
    )
    held = [one.executor.shape.blocks for one in (eight, sixteen)]
    report.ratios["quantised_cache_tokens_held_ratio"] = round(held[0] / held[1], 3)
    for one in (eight, sixteen):
        one.executor.close()

    short = prompts(32)
    four, plain = (Decoding.of(folder, "auto", short, tokens) for folder in (shipped, unquantised_folder()))
    report.results["decode_tok_s_weights_4_bits"], report.results["decode_tok_s_weights_16_bits"], weights = compare(
        report, four, plain, rounds
    )
    report.ratios["quantised_weights_tok_s_ratio"] = weights
    for one in (four, plain):
        one.executor.close()
    report.print_json()


if __name__ == "__main__":
    main()

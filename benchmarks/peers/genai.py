"""OpenVINO GenAI's ContinuousBatchingPipeline in a process of its own, on the same model files as our replica.

``python -m benchmarks.peers.genai FOLDER BLOCKS`` reads one JSON list of chats a line, plays it in its step loop (no wire: the
most favourable place for it) and answers with what its clients saw. FOLDER holds our IR and OpenVINO's tokenizer files.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.chats import Chat, Played, Player, Prompt, played_to_json

KV_CACHE_PRECISION = "bf16"


def _pipeline(folder: Path, blocks: int) -> Any:
    import_module("antiphon.engines.quiet_openvino")
    genai = import_module("openvino_genai")
    scheduling = genai.SchedulerConfig()
    scheduling.num_kv_blocks = blocks
    scheduling.enable_prefix_caching = True
    scheduling.dynamic_split_fuse = True
    return genai.ContinuousBatchingPipeline(str(folder), scheduling, "CPU", {"KV_CACHE_PRECISION": KV_CACHE_PRECISION})


def _sampling(prompt: Prompt) -> Any:
    genai = import_module("openvino_genai")
    sampling = genai.GenerationConfig()
    sampling.max_new_tokens = prompt.chat.max_tokens
    sampling.ignore_eos = True
    sampling.do_sample = prompt.chat.temperature > 0
    if sampling.do_sample:
        sampling.temperature = prompt.chat.temperature
        sampling.top_p = prompt.chat.top_p
        sampling.rng_seed = prompt.seed
    return sampling


def play(pipeline: Any, chats: list[Chat]) -> Played:
    """Closed or open loop, in this thread: send what is due, step, read what came out."""
    numpy, ov = import_module("numpy"), import_module("openvino")
    player = Player(chats)
    reading: dict[int, tuple[Any, Prompt, int]] = {}
    start = time.perf_counter()
    last = 0.0
    while not player.done:
        for prompt in player.due(time.perf_counter() - start):
            ids = ov.Tensor(numpy.asarray([prompt.ids], numpy.int64))
            reading[prompt.key] = (pipeline.add_request(prompt.key, ids, _sampling(prompt)), prompt, 0)
        if not reading:
            arrival = player.next_arrival_s
            assert arrival is not None
            time.sleep(max(arrival - (time.perf_counter() - start), 0.0))
            continue
        pipeline.step()
        now = time.perf_counter() - start
        for key, (handle, prompt, seen) in list(reading.items()):
            if not handle.can_read():
                continue
            ids = next(iter(handle.read().values())).generated_ids
            player.tokens(key, ids, now)
            last = now
            reading[key] = (handle, prompt, seen + len(ids))
            if seen + len(ids) >= prompt.chat.max_tokens:
                del reading[key]
                player.ended(key)
    return Played(player.turns, last)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    pipeline = _pipeline(Path(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps({"version": version("openvino-genai")}), file=answers)
    for line in sys.stdin:
        chats = [Chat(**{**fields, "turns": tuple(tuple(turn) for turn in fields["turns"])}) for fields in json.loads(line)]
        print(json.dumps(played_to_json(play(pipeline, chats))), file=answers)


if __name__ == "__main__":
    main()

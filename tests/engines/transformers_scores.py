"""What transformers thinks of texts, in f32. Runs in an environment of its own: imports nothing of ours but the GGUF reader's.

``python transformers_scores.py GGUF TEXTS SCORES``: TEXTS is JSON, ``[[prompt ids, answer ids]…]``; SCORES becomes a NumPy
archive of ``top`` and ``logprob``, both [texts, answer tokens]: the most probable token at each place of the answer, and the
log-probability of the answer's own.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers"))

from vllm_model import read_model


def main() -> None:
    source, texts, scores = (Path(argument) for argument in sys.argv[1:4])
    model = read_model(source).to(torch.float32).eval()
    top: list[np.ndarray] = []
    logprob: list[np.ndarray] = []
    for prompt, answer in json.loads(texts.read_text()):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer]), logits_to_keep=len(answer) + 1).logits[0, :-1]
        own = torch.log_softmax(logits.double(), dim=-1)[torch.arange(len(answer)), torch.tensor(answer)]
        top.append(logits.argmax(dim=-1).numpy())
        logprob.append(own.numpy())
    np.savez(scores, top=np.stack(top), logprob=np.stack(logprob))


if __name__ == "__main__":
    main()

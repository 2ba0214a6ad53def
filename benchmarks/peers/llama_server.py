"""llama.cpp's own server, from the ``xllamacpp`` wheel. Runs in that wheel's environment: imports nothing of ours.

``python llama_server.py MODEL SLOTS CONTEXT`` prints one JSON line with its address and lives until stdin ends.
"""

import json
import os
import sys
from importlib.metadata import version

import xllamacpp


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.n_parallel = int(sys.argv[2])
    params.n_ctx = int(sys.argv[3])
    params.cont_batching = True
    params.cache_prompt = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    print(json.dumps({"version": version("xllamacpp"), "address": server.listening_address}), file=answers)
    sys.stdin.read()
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

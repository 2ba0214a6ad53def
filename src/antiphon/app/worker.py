"""A replica process: ``python -m antiphon.app.worker``, started by the supervisor and by nobody else.

The first line on stdin says what to serve and where. Stdin stays open as long as the parent lives: its end ends this process
at once, even inside a forward pass. SIGINT and SIGTERM are the server's to answer; it stops its replicas when it has drained.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from antiphon.app.logging import configure_logging
from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.engines.base import Executor, ReplicaSpec, Tokenizer
from antiphon.engines.release import release_of
from antiphon.inference.wire import Handshake, StartFailure

log = structlog.get_logger(__name__)

_FAILED = 1
_LINGER_MS = 1000


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    stdin = sys.stdin.buffer
    line = stdin.readline()
    if not line:
        return _FAILED
    handshake = msgspec.json.decode(line, type=Handshake)
    say = _private_stdout()
    configure_logging(handshake.log_format)
    threading.Thread(target=_die_with_parent, args=(stdin,), name="parent", daemon=True).start()
    try:
        _serve(handshake)
    except ModelUnusable as failure:
        return _fail(say, StartFailure(str(failure), ModelUnusable.code))
    except EngineFailed as failure:
        return _fail(say, StartFailure(failure.detail))
    except Exception as failure:
        log.exception("worker_failed", replica=handshake.replica_id)
        return _fail(say, StartFailure(f"The engine failed: {type(failure).__name__}."))
    return 0


def _serve(handshake: Handshake) -> None:
    """Build what the handshake names and run its loop until it is told to stop."""
    spec = handshake.spec
    if spec.engine == "openai":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_relay(handshake))
        return
    _limit_threads()
    release = release_of(spec)
    executor, tokenizer = _build(spec)

    from antiphon.app.system import SystemClock
    from antiphon.inference.channel import ReplicaChannel
    from antiphon.inference.replica import Replica, settings_of

    gc.collect()
    gc.freeze()  # what was loaded stays: no collection in mid-step looks at it again
    channel = ReplicaChannel(handshake.address, computes=spec.engine == "openvino")
    try:
        Replica(executor, tokenizer, channel, SystemClock(), settings_of(spec), release).run()
    finally:
        channel.close(_LINGER_MS)
        executor.close()


async def _relay(handshake: Handshake) -> None:
    """Pass requests on to a server that is not ours. Raises ``EngineFailed`` when it cannot be reached or does not serve the model."""
    from antiphon.app.system import SystemClock
    from antiphon.engines.openai_http import DEFAULT_CONTEXT_TOKENS, Endpoint, OpenAiEngine
    from antiphon.inference.relay import Relay

    spec, clock = handshake.spec, SystemClock()
    engine = OpenAiEngine(Endpoint(spec.url, spec.model, spec.api_key or os.environ.get(spec.api_key_env, "")), clock)
    try:
        served = await engine.probe()
        context_tokens = spec.context_tokens or served.context_tokens or DEFAULT_CONTEXT_TOKENS
        await Relay(engine, handshake.address, clock, context_tokens=context_tokens, release=release_of(spec)).run()
    finally:
        await engine.close()


def _build(spec: ReplicaSpec) -> tuple[Executor, Tokenizer]:
    if spec.engine == "reference":
        from antiphon.engines.reference import ReferenceExecutor
        from antiphon.engines.reference_tokenizer import ReferenceTokenizer

        return ReferenceExecutor(spec), ReferenceTokenizer(spec.vocabulary)
    from antiphon.engines.openvino import OpenVinoExecutor
    from antiphon.engines.tokenizer import load_tokenizer

    return OpenVinoExecutor(spec), load_tokenizer(Path(spec.model_path), prepared=False)


def _limit_threads() -> None:
    """The executor has threads of its own; the libraries beside it must not compete with them."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _private_stdout() -> BinaryIO:
    """The pipe to the supervisor, for us alone: whatever a library prints goes to stderr instead."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return pipe


def _die_with_parent(stdin: BinaryIO) -> None:
    while stdin.read(1):
        pass
    os._exit(_FAILED)


def _fail(say: BinaryIO, failure: StartFailure) -> int:
    say.write(msgspec.json.encode(failure) + b"\n")
    return _FAILED


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

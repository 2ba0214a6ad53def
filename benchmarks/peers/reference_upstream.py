"""The reference engine as an OpenAI-compatible server of its own: what gateways are put in front of. ``python -m … PORT``."""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.wire import FailedFrame, FinishedFrame, SequenceFrame, TokensFrame
from benchmarks.chats import Chat
from benchmarks.gateway_added import SPEC
from benchmarks.replica_client import ReplicaClient, engine_request, replica

MODEL = "small"
_TOKENIZER = ReferenceTokenizer()
_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store"}


def _chunk(text: str, finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish_reason}
    event = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def application(client: ReplicaClient) -> web.Application:
    """What routers ask of an engine: its health, its models, what it is, and completions."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        ids = tuple(_TOKENIZER.prompt([PromptMessage(Role(message["role"]), message["content"]) for message in body["messages"]]))
        frames: asyncio.Queue[SequenceFrame] = asyncio.Queue()
        chat = Chat(0, (ids,), int(body.get("max_tokens") or 64), 1, 0.0)
        handle = client.submit(engine_request(chat, ids, 1, "upstream"), lambda frame, _at: frames.put_nowait(frame))
        answer = web.StreamResponse(headers=_HEADERS)
        await answer.prepare(request)
        try:
            while True:
                frame = await frames.get()
                if isinstance(frame, TokensFrame) and frame.text:
                    await answer.write(_chunk(frame.text, None))
                elif isinstance(frame, FinishedFrame | FailedFrame):
                    await answer.write(_chunk("", "length") + b"data: [DONE]\n\n")
                    return answer
        except BaseException:
            client.cancel(handle)
            raise

    async def well(_request: web.Request) -> web.Response:
        return web.Response()

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "reference"}]})

    async def described(_request: web.Request) -> web.Response:
        return web.json_response({"model_path": MODEL, "served_model_name": MODEL, "tp_size": 1, "dp_size": 1})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", well)
    for path in ("/get_server_info", "/server_info", "/get_model_info", "/model_info"):
        app.router.add_get(path, described)
    return app


async def serve(port: int) -> None:
    """Until stdin ends."""
    async with replica(SPEC) as client:
        runner = web.AppRunner(application(client), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))

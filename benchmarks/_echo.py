"""What a service costs without a model: HTTP in front, TLS to a partner behind, messages of the same sizes.

    python -m benchmarks._echo label FOLDER LINK HTTP ANSWER
    python -m benchmarks._echo features FOLDER LINK WIDTH

The label party's echo sends a token's bytes to its partner for each request, and when WIDTH bytes have come back
answers with ANSWER bytes; several requests may be on their way. LINK and HTTP are ports.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tacit.company.folder import Folder
from tacit.contracts import Link, Message
from tacit.errors import LinkError
from tacit.listening import listen as listen_http
from tacit.serve.conversation import feature_limits, label_limits
from tacit.serve.tokens import SIZE
from tacit.wire.network import connect, listen


def label(path: str, link_port: str, http_port: str, answer: str) -> None:
    """Answer HTTP, after a round trip to the partner."""
    folder = Folder(Path(path))
    door = listen(f"127.0.0.1:{link_port}", folder.identity, folder.trusted, label_limits({"features": 1 << 16}))
    link = door.accept()
    assert link is not None
    asyncio.run(_answer(link, int(http_port), b"x" * int(answer)))


async def _answer(link: Link, port: int, said: bytes) -> None:
    loop, steps, sender = asyncio.get_running_loop(), count(1), ThreadPoolExecutor(1)
    waiting: dict[int, asyncio.Future[None]] = {}

    def hear() -> None:
        while True:
            try:
                message = link.recv()
            except LinkError:  # the benchmark is over
                return
            assert message is not None
            loop.call_soon_threadsafe(lambda step=message.step: waiting.pop(step).set_result(None))  # type: ignore[misc]

    async def score(request: Request) -> Response:
        await request.body()
        step = next(steps)
        waiting[step] = answered = loop.create_future()
        sender.submit(link.send, Message(step, "tokens", torch.zeros(1, SIZE, dtype=torch.uint8), b""))
        await answered
        return Response(said, media_type="application/json")

    threading.Thread(target=hear, daemon=True).start()
    app = Starlette(routes=[Route("/score", score, methods=["POST"])])
    config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", loop="asyncio", log_level="critical")
    print("ready", flush=True)
    await uvicorn.Server(config).serve(sockets=[listen_http("127.0.0.1", int(port))])


def features(path: str, link_port: str, width: str) -> None:
    """Send so many bytes back for each message."""
    folder = Folder(Path(path))
    name = folder.terms.label_party
    address = f"127.0.0.1:{link_port}"
    link = connect(address, folder.identity, name, folder.trusted[name], feature_limits())
    payload = torch.zeros(1, int(width), dtype=torch.uint8)
    while True:
        message = link.recv()
        assert message is not None
        link.send(Message(message.step, "embedding", payload, b""))


if __name__ == "__main__":
    if sys.argv[1] == "label":
        label(*sys.argv[2:])
    else:
        features(*sys.argv[2:])

"""CTranslate2 behind starlette, a request at a time: tokens in, tokens out. Prints its port, and serves until its end.

Two translators of one thread work in parallel; each request is translated by itself, as its client is waiting.
"""

import argparse
import json
import socket
import sys

import ctranslate2
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    model = ctranslate2.Translator(
        given.model, device="cpu", compute_type=given.kind, inter_threads=given.threads, intra_threads=1
    )

    def translate(tokens: list[str]) -> list[str]:
        (found,) = model.translate_batch([tokens], beam_size=given.beam, length_penalty=0.6)
        return list(found.hypotheses[0])

    async def answer(request: Request) -> JSONResponse:
        tokens = (await request.json())["tokens"]
        return JSONResponse({"tokens": await run_in_threadpool(translate, tokens)})

    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    app = Starlette(routes=[Route("/translate", answer, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="error", http="h11", access_log=False)).run([listener])
    sys.exit(0)


if __name__ == "__main__":
    main()

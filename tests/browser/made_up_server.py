"""The page before made-up answers: any text in every field, an error or silence on demand.

A real model writes what it has learned; here the attacker writes: names of models, pieces, rivals, labels and errors.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from look.beams import searched
from seqloom.look.beam_tree import lay_out, tree_record
from seqloom.serve.pages import page_routes


@dataclass
class Answers:
    """What the made-up server says."""

    text: str = ""
    """Put into every field that a model, a file or a server could fill."""
    error: str = ""
    delay: float = 0.0
    runs: list[list[dict[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str, Any]] = field(default_factory=list)


def side(text: str, extra: str, *, is_target: bool) -> dict[str, Any]:
    """A text cut into words, the longer of them into two pieces."""
    pieces: list[dict[str, Any]] = []
    words: list[dict[str, Any]] = []
    at = 0
    for number, word in enumerate(text.split()):
        begin = text.index(word, at)
        at = begin + len(word)
        parts = [word] if len(word) < 8 else [word[:5], word[5:]]
        first = len(pieces)
        for part in parts:
            piece = {"id": 10 + len(pieces), "text": part, "shown": f"{part}{extra}", "unknown": len(word) == 3}
            if is_target:
                p = 0.35 if number % 4 == 3 else 0.93
                rivals = [
                    {"id": 200 + place, "text": f"{part[:place]}r{extra}", "probability": p / 2**place}
                    for place in range(5)
                ]
                piece |= {"probability": p, "entropy": 0.4, "rivals": rivals}
            pieces.append(piece)
        words.append({"text": word, "begin": begin, "end": at, "first": first, "last": len(pieces) - 1})
    end = {"id": 2, "text": "", "shown": "END", "unknown": False}
    if is_target:
        end |= {"probability": 0.99, "entropy": 0.0, "rivals": []}
    words.append({"text": "END", "begin": None, "end": None, "first": len(pieces), "last": len(pieces)})
    return {"pieces": [*pieces, end], "text": text, "words": words}


def soft(rows: int, columns: int) -> list[list[float]]:
    """Rows that sum to one, with most weight near the diagonal."""
    found = []
    for row in range(rows):
        weights = [1 / (1 + (row * columns / max(1, rows) - column) ** 2) for column in range(columns)]
        found.append([weight / sum(weights) for weight in weights])
    return found


class MadeUp:
    """The routes of /api/."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers

    def routes(self) -> list[Route]:
        """All of them, and the page."""
        posts = {"translate": self.translate, "look": self.look, "attention": self.attention, "reasons": self.reasons}
        posts |= {"reach": self.reach, "pieces": self.pieces, "next": self.next}
        return [
            *page_routes(),
            Route("/ready", self.ready),
            Route("/api/models", self.models),
            Route("/api/runs", self.runs),
            Route("/api/runs/{name:path}/events", self.events),
            Route("/api/sentences", self.sentences, methods=["POST"]),
            *(Route(f"/api/{name}", self._posted(name, call), methods=["POST"]) for name, call in posts.items()),
        ]

    def _posted(self, name: str, call: Any) -> Any:
        async def endpoint(request: Request) -> Response:
            body = await request.json()
            self.answers.asked.append((name, body))
            if self.answers.delay:
                await asyncio.sleep(self.answers.delay)
            if self.answers.error:
                return JSONResponse({"error": {"message": self.answers.error}}, 400)
            return JSONResponse(call(body))

        return endpoint

    async def ready(self, _request: Request) -> Response:
        return JSONResponse({"status": "ready"})

    async def models(self, _request: Request) -> Response:
        extra = self.answers.text
        can = {"watch": True, "attention": True, "heads": True, "reasons": True, "reach": True}
        model = {
            "name": f"small{extra}",
            "purpose": "translator",
            "kind": "transformer",
            "source": "en",
            "target": "de",
            "source_name": f"English{extra}",
            "target_name": f"German{extra}",
            "scores": [f"BLEU 40.7{extra}"],
            "parameters": 1000,
            "can": can,
            "why_not": {},
            "attention": {"layers": 3, "heads": 4},
            "search": {"beam": 4, "alpha": 1.0, "stop": "proven", "stops": ["proven", "first"]},
            "examples": [f"A small house{extra}", "The dog sees a tree.", "They sleep."],
        }
        back = model | {
            "name": f"back{extra}",
            "source": "de",
            "target": "en",
            "source_name": "German",
            "target_name": "English",
        }
        no = f"Phrases have no attention{extra}."
        plain = model | {
            "name": f"phrases{extra}",
            "can": dict.fromkeys(can, False),
            "why_not": dict.fromkeys(can, no),
            "attention": None,
        }
        writer = {"name": f"writer{extra}", "purpose": "language model", "can": {}, "scores": []}
        return JSONResponse(
            {
                "name": f"Seqloom{extra}",
                "version": "1.0",
                "limits": {"characters": 5000, "texts": 64},
                "needs_key": False,
                "has_runs": True,
                "models": [model, back, plain, writer],
            }
        )

    def translate(self, body: Any) -> Any:
        text, extra = body["text"], self.answers.text
        sentences, at = [], 0
        for part in text.replace("! ", ". ").split(". "):
            begin = text.index(part, at)
            at = begin + len(part)
            done = f"{part[::-1]}{extra}".strip()
            sentences.append(
                {
                    "begin": begin,
                    "end": at,
                    "source": part,
                    "translation": done,
                    "confidence": 0.8,
                    "alternatives": [extra],
                }
            )
        return {
            "seconds": 0.031,
            "unknown_share": 0.02,
            "sentences": sentences,
            "text": " ".join(each["translation"] for each in sentences),
        }

    def look(self, body: Any) -> Any:
        extra = self.answers.text
        source = side(body["source"], extra, is_target=False)
        text = f"{body['source'][::-1]}{extra}".strip()
        if body["prefix"]:
            text = "chosen " + text
        target = side(text, extra, is_target=True)
        trace, found = searched(seed=2, beam=3, nbest=3)
        tree = lay_out(
            trace, found, piece=lambda symbol: f"{symbol}{extra}", text=lambda ids: f"{' '.join(map(str, ids))}{extra}"
        )
        return {
            "source": source,
            "target": target,
            "hypotheses": [
                {"ids": [9], "text": text, "score": -0.4, "terms": {}},
                {"ids": [9, 8], "text": f"other {text}", "score": -0.5, "terms": {}},
            ],
            "attention": soft(len(target["pieces"]), len(source["pieces"])),
            "words": {"attention": soft(len(target["words"]), len(source["words"]))},
            "translation": text,
            "score": -0.4,
            "log_prob": -1.2,
            "seconds": 0.02,
            "tree": tree_record(tree),
        }

    def attention(self, body: Any) -> Any:
        columns = len(side(body["source"], "", is_target=False)["pieces"])
        weights = [[soft(len(body["target"]), columns) for _ in range(4)] for _ in range(3)]
        cost = [[0.1 * layer * head - 0.05 for head in range(4)] for layer in range(3)]
        return {"layers": 3, "heads": 4, "weights": weights, "cost": cost}

    def reasons(self, body: Any) -> Any:
        columns = len(side(body["source"], "", is_target=False)["pieces"])
        matrix = [[value - 0.1 for value in row] for row in soft(len(body["target"]), columns)]
        return {"matrix": matrix, "gap": 0.004 if body["method"] == "integrated_gradients" else None, "steps": 32}

    def reach(self, body: Any) -> Any:
        extra = self.answers.text
        names = [f"x{extra}{place}" for place in range(6)]
        maps = [{"name": f"encoder{extra}", "rows": names, "columns": names, "matrix": soft(6, 6)}]
        profile = [{"lag": lag, "norm": 0.3**lag} for lag in range(12)]
        return {"maps": maps, "profile": profile, "sentence": f"Falls by two thirds with each step{extra}."}

    def pieces(self, body: Any) -> Any:
        found = side(body["text"], self.answers.text, is_target=False)["pieces"]
        for piece in found:
            is_hebrew = any("\u0590" <= each <= "\u05ff" for each in piece["text"])
            piece |= {"script": "Hebrew", "direction": "rtl"} if is_hebrew else {"script": "Latin", "direction": "ltr"}
        return {"pieces": found}

    def next(self, body: Any) -> Any:
        extra = self.answers.text
        tokens = [
            {"id": at, "text": f" w{at}{extra}", "shown": f" w{at}{extra}", "probability": 0.4 / 2**at}
            for at in range(10)
        ]
        pieces = [{"shown": f"{word}{extra}", "probability": 0.2} for word in body["prompt"].split()]
        return {"tokens": tokens, "perplexity": 12.3, "pieces": pieces}

    async def sentences(self, request: Request) -> Response:
        body, extra = await request.json(), self.answers.text
        pairs = body["pairs"] or [[f"Line {number}{extra}", f"Zeile {number}{extra}"] for number in range(12)]

        async def lines() -> AsyncIterator[str]:
            for done in range(0, len(pairs), 5):
                yield f"data: {json.dumps({'done': done, 'all': len(pairs)})}\n\n"
                await asyncio.sleep(0.02)
            rows = [
                {"source": source, "reference": reference, "translation": f"{reference} {extra}", "chrf": 90.0 - at,
                 "other": {"translation": reference, "chrf": 85.0} if body.get("other") else None}
                for at, (source, reference) in enumerate(pairs)
            ]  # fmt: skip
            scores = [f"BLEU 40.1{extra}", "chrF 60.3"]
            record = {
                "rows": rows,
                "scores": scores,
                "bootstrap": {"p": 0.03, "interval": [0.1, 1.2]},
                "wins": 4,
                "losses": 2,
                "ties": 6,
            }
            yield f"data: {json.dumps(record)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def runs(self, _request: Request) -> Response:
        states = ["training", "finished", "stopped"]
        found = [
            {
                "name": f"run{at}{self.answers.text}",
                "state": states[at % 3],
                "step": len(events) * 10,
                "steps": 2000,
                "seconds_left": 340,
                "model": "small",
            }
            for at, events in enumerate(self.answers.runs)
        ]
        return JSONResponse({"runs": found})

    async def events(self, request: Request) -> Response:
        which = int(request.path_params["name"][3])
        after = int(request.query_params.get("after", 0))

        async def lines() -> AsyncIterator[str]:
            sent = after
            for _ in range(100):
                for event in self.answers.runs[which][sent:]:
                    sent += 1
                    yield f"data: {json.dumps({'id': sent, **event})}\n\n"
                await asyncio.sleep(0.1)

        return StreamingResponse(lines(), media_type="text/event-stream")


@contextmanager
def made_up_server(answers: Answers, *, port: int = 0) -> Iterator[str]:
    """Its address."""
    app = Router(MadeUp(answers).routes())
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)

"""The API of the server of OpenNMT-py, under `/translator`.

    POST /translator/translate  [{"src": "a dog", "id": 0}, {"src": "a cat"}]
                                [[{"src": "a dog", "tgt": "ein Hund", "n_best": 1, "pred_score": -0.8}, {…}]]

The answer has a list per rank, and in it an entry per text. The first item chooses the model, by its number or name
(`/translator/models` lists them), and the ranks (`n_best`). Errors are objects with the status 200.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from seqloom.serve.description import JSON, MODEL, RANKS, TEXT, body, list_of, object_of, responses
from seqloom.serve.http import Call, json_response, require_unicode
from seqloom.serve.models import ServedModel
from seqloom.serve.operations import Operation
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.service import Service, Translated


@dataclass(frozen=True)
class OpenNMT:
    """Errors are `{"status": "error", "error": "sentence"}`; those of a request have the status 200."""

    name: str = "opennmt"

    def refusal(self, refusal: Refusal) -> Response:
        """An error as OpenNMT-py writes it."""
        status = 200 if refusal.status == 400 else refusal.status
        return json_response({"status": "error", "error": refusal.message}, status)


OPENNMT = OpenNMT()


async def translate(service: Service, call: Call) -> Response:
    """`POST /translator/translate`; the body is JSON, whatever its content type says."""
    call.authorise(call.bearer())
    items = call.json()
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise bad_request('the body must be a list of objects, such as [{"src": "a text", "id": 0}]')
    if not all(isinstance(item.get("src"), str) for item in items):
        raise bad_request("each item must have a src, the text to translate")
    require_unicode(items)
    model, ranks = _model(service, items[0].get("id", 0)), _ranks(items[0].get("n_best", 1))
    found = await service.translate(
        call,
        [item["src"] for item in items],
        source=model.source,
        target=model.target or "",
        model=model.name,
        alternatives=ranks - 1,
    )
    entries = [_entries(item["src"], each, ranks) for item, each in zip(items, found, strict=True)]
    return json_response([[some[rank] for some in entries] for rank in range(ranks)])


def _model(service: Service, identity: Any) -> ServedModel:
    """A translator by its number in the list, or by its name."""
    known = service.models.translators
    if isinstance(identity, int) and not isinstance(identity, bool) and 0 <= identity < len(known):
        return known[identity]
    for model in known:
        if model.name == identity:
            return model
    names = ", ".join(f"{number} ({model.name})" for number, model in enumerate(known))
    raise bad_request(f"No such model {str(identity)[:64]!r}; the models are {names}")


def _ranks(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise bad_request("n_best must be a number, at least 1")
    return given


def _entries(source: str, found: Translated, ranks: int) -> list[dict[str, Any]]:
    """The entry of a text in each rank; where the search found fewer translations, the last ranks have no text."""
    scores = {
        other["text"]: other["score"] for line in found.lines if line["text"] for other in line.get("alternatives", ())
    }
    texts: list[tuple[str, float | None]] = [(found.text, 0.0 if found.score is None else found.score)]
    texts += [(text, scores.get(text.strip())) for text in found.alternatives]
    texts += [("", None)] * (ranks - len(texts))
    return [{"src": source, "tgt": text, "n_best": ranks, "pred_score": score} for text, score in texts[:ranks]]


async def models(service: Service, _call: Call) -> Response:
    """`GET /translator/models`."""
    return json_response([_described(number, each) for number, each in enumerate(service.models.translators)])


def _described(number: int, model: ServedModel) -> Mapping[str, Any]:
    return {
        "model_id": number,
        "models": [model.name],
        "opt": {"source": model.source, "target": model.target},
        "loaded": True,
        "timeout": -1,
    }


async def health(_service: Service, _call: Call) -> Response:
    """`GET /translator/health`."""
    return json_response({"status": "ok"})


_ERROR = object_of({"status": {"const": "error"}, "error": TEXT}, "status", "error")
_ENTRY = object_of(
    {"src": TEXT, "tgt": TEXT, "n_best": {"type": "integer"}, "pred_score": {"type": ["number", "null"]}},
    *("src", "tgt", "n_best", "pred_score"),
)
_ITEM = object_of(
    {
        "src": TEXT,
        "id": MODEL,
        "n_best": RANKS,
    },
    "src",
)

OPERATIONS = (
    Operation(
        "/translator/translate",
        ("POST",),
        OPENNMT,
        translate,
        {
            "summary": "Translate texts (OpenNMT-py)",
            "description": "id and n_best are those of the first item.",
            "requestBody": body({**list_of(_ITEM), "minItems": 1}, JSON),
            "responses": responses({"oneOf": [list_of(list_of(_ENTRY)), _ERROR]}, _ERROR, 401, 403, 413, 429, 503),
        },
    ),
    Operation(
        "/translator/models",
        ("GET",),
        OPENNMT,
        models,
        {"summary": "List the models (OpenNMT-py)", "responses": responses(list_of({"type": "object"}), _ERROR)},
    ),
    Operation(
        "/translator/health",
        ("GET",),
        OPENNMT,
        health,
        {
            "summary": "Whether the server is alive (OpenNMT-py)",
            "responses": responses(object_of({"status": {"const": "ok"}}), _ERROR),
        },
    ),
)

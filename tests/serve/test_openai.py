"""The OpenAI dialect: completions, embeddings and chat, by plain requests and by the client of OpenAI."""

import json
import math
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live_server import Answer, RunningServer, TinyModels, running_server, wait_until
from seqloom.apps.language_model import LanguageModel, open_language_model
from seqloom.apps.vectors import open_vectors
from seqloom.cli.serve import example_calls
from seqloom.serve.models import ServedModel, ServedModels

LINES = ("The old man reads a book.", "She is here.")


@pytest.fixture(scope="module")
def language_model(tiny_models: TinyModels) -> LanguageModel:
    return open_language_model(tiny_models.language_model)


def completion(server: RunningServer, prompt: Any, **options: Any) -> Answer:
    return server.call("/v1/completions", {"model": "lm", "prompt": prompt, **options})


def texts_of(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [choice["text"] for choice in answer.json["choices"]]


# --- plain requests ---------------------------------------------------------------------------------------------------


def test_the_request_of_lm_evaluation_harness_gives_the_log_probability_of_a_text(
    server: RunningServer, language_model: LanguageModel
) -> None:
    lines = "\n".join(LINES) + "\n"
    ids = [1, *language_model.tokenizer.encode(LINES[0]), 2]
    answer = completion(server, [lines, LINES[1] + "\n"], echo=True, max_tokens=0, logprobs=10, temperature=0, seed=1)
    by_ids = completion(server, [ids], echo=True, max_tokens=0, logprobs=10)
    first, second = answer.json["choices"]
    (third,) = by_ids.json["choices"]
    expected = [language_model.score(LINES), language_model.score(LINES[1:]), language_model.score(LINES[:1])]
    for choice, scores in zip((first, second, third), expected, strict=True):
        found = choice["logprobs"]
        assert found["token_logprobs"][0] is None
        assert found["top_logprobs"][0] is None
        assert sum(found["token_logprobs"][1:]) == pytest.approx(sum(each.log_prob for each in scores), abs=1e-4)
        assert len(found["tokens"]) == 1 + sum(each.tokens for each in scores)
        assert choice["finish_reason"] == "length"
        for token, own, top in list(zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True))[
            1:
        ]:
            assert top[token] == own  # how the harness learns whether a text is what the model would write
            assert 10 <= len(top) <= 11
            assert sum(map(math.exp, top.values())) < 1.0001
    assert first["text"] == lines
    offsets = [*first["logprobs"]["text_offset"][1:], len(lines)]
    pieces = [lines[begin:end] for begin, end in pairwise(offsets)]
    assert "".join(pieces) == lines
    assert all(
        piece.strip() in (token.strip(), "")
        for piece, token in zip(pieces, first["logprobs"]["tokens"][1:], strict=True)
    )
    assert answer.json["usage"]["completion_tokens"] == 0


def test_texts_are_those_of_the_same_search_in_process(server: RunningServer, language_model: LanguageModel) -> None:
    drawn = completion(server, ["The old", "She "], n=3, seed=5, temperature=0.8, top_p=0.9, max_tokens=12)
    search = {"method": "sample", "temperature": 0.8, "top_p": 0.9, "length_constant": 12, "length_factor": 0.0}
    expected = [language_model.generate(prompt, count=3, seed=5, search=search) for prompt in ("The old", "She ")]
    assert texts_of(drawn) == [each.continuation for some in expected for each in some]
    best = completion(server, "The old", n=1, best_of=3, seed=5, temperature=0.8, top_p=0.9, max_tokens=12)
    top = max(expected[0], key=lambda each: each.log_prob / (each.tokens))
    assert texts_of(best) == [top.continuation]
    reasons = [choice["finish_reason"] for choice in drawn.json["choices"]]
    assert reasons == ["stop" if each.is_finished else "length" for some in expected for each in some]


def test_requests_that_share_a_batch_get_what_they_get_alone(server: RunningServer) -> None:
    def call(number: int) -> list[str]:
        prompt = ["The", "a man reads", "She is here.\nThe"][number % 3]
        return texts_of(completion(server, prompt, seed=number, n=2, max_tokens=24))

    alone = [call(number) for number in range(12)]
    with ThreadPoolExecutor(12) as threads:
        together = list(threads.map(call, range(12)))
    assert together == alone
    assert len({text for texts in alone for text in texts}) > 12  # seeds make a difference


def test_a_stop_text_ends_a_text_and_is_not_part_of_it(server: RunningServer) -> None:
    options = {"seed": 3, "max_tokens": 40, "temperature": 1.0}
    (whole,) = texts_of(completion(server, "The", **options))
    assert len(whole) > 8
    stop = whole[5:8]
    for stream in (False, True):
        answer = completion(server, "The", **options, stop=["nowhere", stop], stream=stream)
        choices = [event["choices"][0] for event in events_of(answer)] if stream else answer.json["choices"]
        assert "".join(choice["text"] for choice in choices) == whole[: whole.index(stop)]
        assert choices[-1]["finish_reason"] == "stop"


def events_of(answer: Answer) -> list[dict[str, Any]]:
    """The events of a stream, which must end as it should."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def test_a_stream_has_the_tokens_of_the_whole_answer(server: RunningServer) -> None:
    options = {"n": 2, "seed": 4, "max_tokens": 10, "logprobs": 2, "echo": True}
    whole = completion(server, ["The", "A dog\nruns"], **options).json
    events = events_of(
        completion(server, ["The", "A dog\nruns"], **options, stream=True, stream_options={"include_usage": True})
    )
    assert events[-1]["usage"] == whole["usage"]
    assert events[-1]["choices"] == []
    assert len(events) > 20  # token by token
    for choice in whole["choices"]:
        parts = [part for event in events for part in event["choices"] if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        for name, values in choice["logprobs"].items():
            assert [value for part in parts for value in part["logprobs"][name]] == values
        assert [part["finish_reason"] for part in parts if part["finish_reason"]] == [choice["finish_reason"]]


def test_a_stream_whose_client_leaves_frees_its_rows(server: RunningServer) -> None:
    before = server.metric("seqloom_dropped_rows_total"), server.metric("seqloom_cancelled_requests_total")
    body = {"model": "lm", "prompt": ["The"] * 64, "n": 8, "max_tokens": 512, "temperature": 100, "stream": True}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + data)
        received = connection.recv(1 << 16)
        assert received.startswith(b"HTTP/1.1 200")
    wait_until(lambda: server.metric("seqloom_dropped_rows_total") > before[0])
    assert server.metric("seqloom_cancelled_requests_total") == before[1] + 1
    assert texts_of(completion(server, "The", max_tokens=1, seed=1))


@pytest.mark.parametrize(
    ("route", "body", "status", "param"),
    [
        ("completions", {"model": "none", "prompt": "a"}, 404, "model"),
        ("completions", {"prompt": "a"}, 400, "model"),
        ("completions", {"model": "en-de", "prompt": "a"}, 400, "model"),
        ("completions", {"model": "lm", "prompt": []}, 400, "prompt"),
        ("completions", {"model": "lm", "prompt": ["a", 1]}, 400, "prompt"),
        ("completions", {"model": "lm", "prompt": [True]}, 400, "prompt"),
        ("completions", {"model": "lm", "prompt": [4, 100_000]}, 400, None),
        ("completions", {"model": "lm", "prompt": [4, -1]}, 400, None),
        ("completions", {"model": "lm", "prompt": [0]}, 400, None),
        ("completions", {"model": "lm", "prompt": ["a"] * 65}, 400, None),
        ("completions", {"model": "lm", "prompt": "a" * 5001}, 400, None),
        ("completions", {"model": "lm", "prompt": [4] * 5001}, 400, None),
        ("completions", {"model": "lm", "prompt": "a", "max_tokens": 513}, 400, "max_tokens"),
        ("completions", {"model": "lm", "prompt": "a", "n": 9}, 400, "n"),
        ("completions", {"model": "lm", "prompt": "a", "n": 3, "best_of": 2}, 400, "best_of"),
        ("completions", {"model": "lm", "prompt": "a", "best_of": 2, "stream": True}, 400, "best_of"),
        ("completions", {"model": "lm", "prompt": "a", "logprobs": 11}, 400, "logprobs"),
        ("completions", {"model": "lm", "prompt": "a", "logprobs": True}, 400, "logprobs"),
        ("completions", {"model": "lm", "prompt": "a", "temperature": -1}, 400, "temperature"),
        ("completions", {"model": "lm", "prompt": "a", "stop": ["a"] * 5}, 400, "stop"),
        ("completions", {"model": "lm", "prompt": "a", "suffix": "b"}, 400, "suffix"),
        ("completions", {"model": "lm", "prompt": "a", "frequency_penalty": 1}, 400, "frequency_penalty"),
        ("completions", {"model": "lm", "prompt": [4, 100_000], "stream": True}, 400, None),
        ("chat/completions", {"model": "lm", "messages": [{"role": "user", "content": "a"}]}, 400, "model"),
        ("chat/completions", {"model": "en-de", "messages": []}, 400, "messages"),
        ("chat/completions", {"model": "en-de", "messages": [{"role": "user", "content": 3}]}, 400, "messages"),
        ("embeddings", {"model": "lm", "input": "a"}, 400, "model"),
        ("embeddings", {"model": "vectors", "input": ""}, 400, None),
        ("embeddings", {"model": "vectors", "input": "qqqq"}, 400, None),
        ("embeddings", {"model": "vectors", "input": "the", "dimensions": 3}, 400, "dimensions"),
        ("embeddings", {"model": "vectors", "input": [10_000_000]}, 400, None),
        ("nothing", {}, 404, None),
    ],
)
def test_what_is_refused_says_why(
    server: RunningServer, route: str, body: dict[str, Any], status: int, param: str | None
) -> None:
    answer = server.call(f"/v1/{route}", body)
    assert answer.status == status, answer.body
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert "/tmp" not in error["message"]


def test_the_calls_that_are_shown_for_language_models_and_vectors_work(server: RunningServer) -> None:
    models = [
        ServedModel(name, Path(), purpose) for name, purpose in (("lm", "language model"), ("vectors", "word vectors"))
    ]
    for some in (models, models[:1], models[1:]):
        calls = example_calls(server.address, ServedModels(tuple(some)), has_keys=True)
        assert calls[-1].endswith("/v1/models -H 'Authorization: Bearer KEY'")
        assert len(calls) == (2 if some == models[1:] else 3)
        for call in calls[:-1]:
            _, address, *_, body = shlex.split(call)
            assert server.call(address.removeprefix(server.address), body.encode()).status == 200


def test_a_language_model_alone_is_served_with_keys_and_drains_its_streams(
    tiny_models: TinyModels, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "seqloom", "keys", "add", "tester", "--file", str(tmp_path / "keys"), "--json"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    bearer = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
    words = [f"lm={tiny_models.language_model}", "--keys", str(tmp_path / "keys")]
    with running_server(words, tmp_path) as server:
        assert server.call("/v1/models").status == 401
        assert (
            server.call("/v1/models", headers={"Authorization": "Bearer wrong"}).json["error"]["code"]
            == "invalid_api_key"
        )
        assert [each["id"] for each in server.call("/v1/models", headers=bearer).json["data"]] == ["lm"]
        body = {"model": "lm", "prompt": ["The"] * 32, "n": 4, "max_tokens": 200, "stream": True, "seed": 1}
        with ThreadPoolExecutor(1) as thread:
            stream = thread.submit(server.call, "/v1/completions", body, headers=bearer)
            wait_until(lambda: server.metric("seqloom_running_texts") > 0)
            server.process.send_signal(signal.SIGTERM)
            events = events_of(stream.result())
        assert len([part for event in events for part in event["choices"] if part["finish_reason"]]) == 128
        assert server.process.wait(30) == 0


# --- the client of OpenAI ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.mark.parity
def test_the_client_lists_models(client: Any) -> None:
    found = {model.id: model for model in client.models.list()}
    assert set(found) == {"en-de", "de-en", "lm", "vectors"}
    assert client.models.retrieve("lm") == found["lm"]
    assert found["lm"].owned_by == "seqloom"
    assert found["lm"].created > 1_600_000_000


@pytest.mark.parity
def test_the_client_completes_whole_and_streamed(client: Any, language_model: LanguageModel) -> None:
    (expected,) = language_model.generate(
        "The", method="sample", temperature=0.0, length_constant=16, length_factor=0.0
    )
    answer = client.completions.create(model="lm", prompt="The", temperature=0, logprobs=3)
    (choice,) = answer.choices
    assert choice.text == expected.continuation
    assert choice.finish_reason == ("stop" if expected.is_finished else "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(choice.logprobs.tokens)
    assert "".join(choice.logprobs.tokens).replace("▁", "") == choice.text
    scored = client.completions.create(model="lm", prompt="The" + choice.text, max_tokens=0, echo=True, logprobs=0)
    whole = scored.choices[0].logprobs.token_logprobs
    assert whole[0] is None
    with client.completions.create(
        model="lm", prompt="The", temperature=0, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert "".join(part.text for chunk in chunks for part in chunk.choices) == choice.text
    assert chunks[-1].usage == answer.usage
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    # Another seed draws another text: equality above is not that of a constant.
    texts = {client.completions.create(model="lm", prompt="The", seed=seed).choices[0].text for seed in range(4)}
    assert len(texts) > 1


@pytest.mark.parity
def test_the_client_reads_log_probabilities(client: Any, language_model: LanguageModel) -> None:
    text = LINES[0] + "\n"
    answer = client.completions.create(model="lm", prompt=text, echo=True, max_tokens=0, logprobs=10)
    found = answer.choices[0].logprobs
    (expected,) = language_model.score([LINES[0]])
    assert sum(found.token_logprobs[1:]) == pytest.approx(expected.log_prob, abs=1e-4)
    (other,) = language_model.score([LINES[0].lower()])
    assert abs(other.log_prob - expected.log_prob) > 1e-3  # a similar text would not do


@pytest.mark.parity
def test_the_client_embeds(client: Any, tiny_models: TinyModels) -> None:
    vectors = open_vectors(tiny_models.vectors)
    first, second = [word for word in vectors.words if word.isalpha()][3:5]
    one = client.embeddings.create(model="vectors", input=first)  # base64, which the client decodes
    many = client.embeddings.create(
        model="vectors", input=[first, f"{first} {second} qqqq"], encoding_format="float", dimensions=vectors.width
    )
    assert np.array_equal(np.array(one.data[0].embedding, np.float32), vectors.vector(first))
    assert np.array_equal(np.array(many.data[0].embedding, np.float32), vectors.vector(first))
    mean = (vectors.vector(first) + vectors.vector(second)) / 2
    np.testing.assert_allclose(many.data[1].embedding, mean, rtol=1e-6)
    assert many.usage.prompt_tokens == 4
    assert vectors.symbols is not None
    by_id = client.embeddings.create(model="vectors", input=[int(vectors.symbols[vectors.row(second)])])
    assert np.array_equal(np.array(by_id.data[0].embedding, np.float32), vectors.vector(second))


@pytest.mark.parity
def test_the_client_translates_by_chat(client: Any, server: RunningServer) -> None:
    text = "the old man reads a book."
    question = {"q": text, "source": "en", "target": "de"}
    expected = server.call("/translate", question).json["translatedText"]
    messages = [
        {"role": "system", "content": "Translate."},
        {"role": "user", "content": "a dog"},
        {"role": "assistant", "content": "…"},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]
    answer = client.chat.completions.create(model="en-de", messages=messages, temperature=0.2)
    assert answer.choices[0].message.content == expected
    assert answer.choices[0].message.role == "assistant"
    chunks = list(client.chat.completions.create(model="en-de", messages=messages, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason
    several = client.chat.completions.create(model="en-de", messages=messages, n=3)
    assert len({choice.message.content for choice in several.choices}) == len(several.choices) > 1
    assert client.chat.completions.create(model="en-de", messages=messages[:2]).choices[0].message.content != expected


@pytest.mark.parity
def test_the_client_maps_errors(client: Any) -> None:
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-4'") as unknown:
        client.completions.create(model="gpt-4", prompt="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
    with pytest.raises(openai.BadRequestError, match="/v1/chat/completions") as wrong:
        client.completions.create(model="en-de", prompt="a")
    assert wrong.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="/v1/completions"):
        client.chat.completions.create(model="lm", messages=[{"role": "user", "content": "a"}])
    with pytest.raises(openai.BadRequestError, match="presence_penalty"):
        client.completions.create(model="lm", prompt="a", presence_penalty=1.5)
    with pytest.raises(openai.BadRequestError, match="id 99999"):
        client.completions.create(model="lm", prompt=[99_999], stream=True)

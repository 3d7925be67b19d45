"""The requests of real programs, byte for byte where it matters, and their way of reading the answers.

The requests follow the sources of Weblate (`machinery/libretranslate.py`, `machinery/apertium.py`), OmegaT
(`ApertiumTranslate.java`), Mastodon (`libre_translate.rb`), Akkoma, Rebased, Lingarr, MediaWiki's cxserver, the PHP
library that Nextcloud uses, and the server of OpenNMT-py, which cannot be installed here.
"""

import json
import re
import socket
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest

from live_server import Answer, RunningServer, TinyModels
from seqloom import Translator

# The tiny models do not know where to stop.
pytestmark = pytest.mark.filterwarnings("ignore:.*maximum output length")

TEXT = "the old man reads a book."
OTHER = "a dog sees the red house"
STAY_AWAY = {401, 403, 429, 456, 503}
"""Statuses after which Weblate makes no further call for half an hour."""


@pytest.fixture(scope="module")
def expected(tiny_models: TinyModels) -> dict[str, str]:
    """Translations by the library, without a server."""
    translator = Translator.load(tiny_models.english_german)
    return {text: translator.translate([text])[0] for text in (TEXT, OTHER, "test")}


# --- Weblate ----------------------------------------------------------------------------------------------------------

WEBLATE = {
    "User-Agent": "Weblate/5.14.3",
    "Referer": "https://weblate.example.org",
    "Accept": "application/json; charset=utf-8",
    "Accept-Encoding": "gzip, deflate",
}


def weblate_checked(answer: Answer) -> Any:
    """What Weblate makes of an answer: an error for a status from 400 on, otherwise the JSON."""
    if answer.status >= 400:
        raise ConnectionError(answer.status, answer.json.get("message") or answer.json.get("error"))
    return answer.json


def weblate_batch(server: RunningServer, texts: list[str], source: str, target: str) -> list[str]:
    question = {"api_key": "", "q": texts, "source": source, "target": target}
    translated = weblate_checked(server.call("/translate", question, headers=WEBLATE))["translatedText"]
    return [translated[index] for index, _ in enumerate(texts)]


def test_weblate_saves_its_settings_and_translates_batches(server: RunningServer, expected: dict[str, str]) -> None:
    codes = {each["code"] for each in weblate_checked(server.call("/languages", headers=WEBLATE))}
    assert codes == {"en", "de"}
    # It translates "test" from English to German before it saves its settings.
    assert weblate_batch(server, ["test"], "en", "de") == [expected["test"]]
    texts = [f"{TEXT[:-1]} [X{number}X]" for number in range(18)]
    found = weblate_batch(server, [*texts, TEXT, OTHER], "en", "de")
    assert found[18:] == [expected[TEXT], expected[OTHER]]
    for number, text in enumerate(found[:18]):
        assert re.findall(r"\[X\d+X\]", text) == [f"[X{number}X]"]


def test_weblate_sees_a_wrong_request_as_such_and_does_not_stay_away(server: RunningServer) -> None:
    for texts, source, target in (
        ([TEXT], "en", "fr"),
        ([TEXT], "xx", "de"),
        ([], "en", "de"),
        ([TEXT] * 65, "en", "de"),
    ):
        with pytest.raises(ConnectionError) as caught:
            weblate_batch(server, texts, source, target)
        assert caught.value.args[0] not in STAY_AWAY
        assert caught.value.args[0] == 400
        assert isinstance(caught.value.args[1], str)


def weblate_apertium(server: RunningServer, text: str, source: str, target: str) -> str:
    arguments = urlencode({"langpair": f"{source}|{target}", "q": text, "markUnknown": "no"})
    answer = weblate_checked(server.call(f"/translate?{arguments}", headers=WEBLATE))
    translated: str = answer["responseData"]["translatedText"]
    return translated


def test_weblate_speaks_apertium(server: RunningServer, expected: dict[str, str]) -> None:
    pairs = weblate_checked(server.call("/listPairs", headers=WEBLATE))["responseData"]
    known = [(pair["sourceLanguage"], pair["targetLanguage"]) for pair in pairs]
    assert sorted(known) == [("de", "en"), ("en", "de")]
    assert weblate_apertium(server, "test", *known[0])
    # A code that is not listed is sent with three letters.
    for source, target in (("en", "de"), ("eng", "deu"), ("en_US", "de_AT")):
        assert weblate_apertium(server, TEXT, source, target) == expected[TEXT]
    for wrong in (("en", "fr"), ("en", "")):
        with pytest.raises(ConnectionError) as caught:
            weblate_apertium(server, TEXT, *wrong)
        assert caught.value.args[0] == 400


# --- OmegaT and MediaWiki ---------------------------------------------------------------------------------------------


def omegat_answer(server: RunningServer, query: str) -> tuple[int, str]:
    """Status and body of a GET as Java sends it: the query is not encoded any further."""
    head = (
        f"GET /translate?{query} HTTP/1.1\r\nUser-Agent: Java/17.0.12\r\nHost: 127.0.0.1:{server.port}\r\n"
        "Accept: text/html, image/gif, image/jpeg, */*; q=0.2\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head.encode("latin-1"))
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    top, _, body = data.partition(b"\r\n\r\n")
    assert b"charset=utf-8" in top.lower()  # without it, older versions read the text as Latin-1
    return int(top.split()[1]), body.decode()


def omegat_reads(answer: tuple[int, str]) -> str:
    """What OmegaT shows: the text, or an error where Java or itself raises one."""
    status, body = answer
    if status >= 400:
        raise OSError(status)
    record = json.loads(body)
    if record["responseStatus"] != 200:
        raise ValueError(record["responseDetails"])
    text: str = record["responseData"]["translatedText"]
    return text


def test_omegat_sends_a_raw_bar_in_the_address(server: RunningServer, expected: dict[str, str]) -> None:
    for pair in ("en|de", "en_US|de"):
        answer = omegat_answer(server, f"q={quote_plus(TEXT)}&markUnknown=no&langpair={pair}&key=")
        assert omegat_reads(answer) == expected[TEXT]
    tagged = omegat_answer(
        server, f"q={quote_plus('<f0>the old man</f0> reads <i1/>')}&markUnknown=yes&langpair=en|de&key="
    )
    assert sorted(re.findall("<[^>]*>", omegat_reads(tagged))) == ["</f0>", "<f0>", "<i1/>"]
    wrong = omegat_answer(server, f"q={quote_plus(TEXT)}&markUnknown=no&langpair=en|pt_BR&key=")
    error = json.loads(wrong[1])
    assert (error["status"], error["code"], error["message"]) == ("error", 400, "Bad Request")
    assert "'pt' is not supported" in error["explanation"]
    with pytest.raises(OSError, match="400"):
        omegat_reads(wrong)


def test_mediawiki_posts_a_form_to_apertium(server: RunningServer, expected: dict[str, str]) -> None:
    form = {"markUnknown": "0", "langpair": "eng|deu", "format": "txt", "q": TEXT}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = server.call("/translate", urlencode(form).encode(), headers=headers)
    assert answer.json["responseData"]["translatedText"] == expected[TEXT]
    refused = server.call("/translate", urlencode({**form, "langpair": "eng-deu"}).encode(), headers=headers)
    assert refused.status == refused.json["code"] == 400
    listed = server.call("/list?q=pairs&src=eng")
    assert listed.json["responseData"] == [{"sourceLanguage": "en", "targetLanguage": "de"}]
    assert server.call("/list?q=analysers").json["code"] == 400


# --- Mastodon, Akkoma, Rebased, Lingarr -------------------------------------------------------------------------------

MASTODON = {
    "User-Agent": "Mastodon/4.5.0 (http.rb/5.3.1; +https://mastodon.example.org/)",
    "Date": "Tue, 17 Nov 2026 12:00:00 GMT",
    "Accept-Encoding": "gzip",
    "Content-Type": "application/json",
}


def mastodon_translates(server: RunningServer, texts: list[str], source: str | None) -> list[tuple[str, str | None]]:
    """Texts and their detected languages, as Mastodon reads them."""
    question = {"q": texts, "source": source or "auto", "target": "de", "format": "html", "api_key": None}
    answer = server.call("/translate", question, headers=MASTODON)
    if answer.status == 429:
        raise BlockingIOError("too many requests")
    if answer.status == 403:
        raise PermissionError("quota exceeded")
    if not 200 <= answer.status < 300:
        raise ValueError("unexpected response")
    data = answer.json
    detected = data.get("detectedLanguage")
    return [
        (text, detected[index]["language"] if detected else source) for index, text in enumerate(data["translatedText"])
    ]


def test_mastodon_translates_posts_as_html(server: RunningServer) -> None:
    languages = {each["code"]: each["targets"] for each in server.call("/languages", headers=MASTODON).json}
    assert languages == {"en": ["de"], "de": ["en"]}
    post = (
        '<p>the old man <a href="https://a.example/?b=1&amp;c=2" class="x">reads</a> a book.</p><p>a dog<br>sees me</p>'
    )
    for source in (None, "en"):
        # The options of a poll are sent with the post. They need not have letters.
        found = mastodon_translates(server, [post, TEXT, "10 %", "☺"], source)
        assert [language for _, language in found] == ["en"] * 4
        tags = re.findall("<[^>]*>", found[0][0])
        assert sorted(tags) == sorted(re.findall("<[^>]*>", post))
        assert tags[0] == "<p>"
        assert tags[-1] == "</p>"
    for texts, source in ((["☺"], None), ([TEXT], "fr")):
        with pytest.raises(ValueError, match="unexpected response"):
            mastodon_translates(server, texts, source)


def test_akkoma_and_rebased_translate_a_post(server: RunningServer, expected: dict[str, str]) -> None:
    question = {"q": TEXT, "source": "auto", "target": "de", "format": "html", "api_key": "any"}
    akkoma = server.call("/translate", question, headers={"content-type": "application/json"})
    assert akkoma.json["detectedLanguage"]["language"] == "en"
    assert 0 < akkoma.json["detectedLanguage"]["confidence"] <= 100
    rebased = server.call("/translate", {**question, "source": "EN"}, headers={"content-type": "application/json"})
    assert rebased.json == {"translatedText": expected[TEXT]}
    assert akkoma.json["translatedText"] == expected[TEXT]


def test_lingarr_translates_a_subtitle_line(server: RunningServer, expected: dict[str, str]) -> None:
    # System.Text.Json escapes what is not ASCII, and some of what is.
    body = json.dumps({"q": TEXT, "source": "en", "target": "de", "format": "text", "api_key": None}).replace(
        "'", "\\u0027"
    )
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    assert server.call("/translate", body.encode(), headers=headers).json == {"translatedText": expected[TEXT]}
    refused = server.call("/translate", body.replace('"de"', '"pt"').encode(), headers=headers)
    assert refused.status == 400
    assert "translatedText" not in refused.json


# --- LibreTranslate: what no client library sends ---------------------------------------------------------------------


def test_parameters_of_libretranslate_come_in_three_encodings(server: RunningServer, expected: dict[str, str]) -> None:
    question = {"q": TEXT, "source": "en", "target": "de", "alternatives": "2"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answers = [
        server.call("/translate", question),
        server.call("/translate", urlencode(question).encode(), headers=form),
        server.call(f"/translate?{urlencode(question)}", b"", method="POST"),
    ]
    assert [answer.json["translatedText"] for answer in answers] == [expected[TEXT]] * 3
    others = answers[0].json["alternatives"]
    assert len({expected[TEXT], *others}) == 3
    assert answers[0].json == answers[1].json == answers[2].json
    both = server.call("/translate", {**question, "q": [TEXT, OTHER], "source": "auto"}).json
    assert both["translatedText"] == [expected[TEXT], expected[OTHER]]
    assert both["alternatives"][0] == others
    assert [each["language"] for each in both["detectedLanguage"]] == ["en", "en"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": ""}, "missing q parameter"),
        ({"q": None}, "missing q parameter"),
        ({"q": 7}, "must be a string"),
        ({"q": [7]}, "must be a string"),
        ({"q": "x" * 5001}, "5,001 characters"),
        ({"source": ""}, "missing source parameter"),
        ({"target": ["de"]}, "target must be a string"),
        ({"format": "rtf"}, "'rtf' format is not supported"),
        ({"alternatives": "many"}, "alternatives parameter is not a number"),
        ({"alternatives": True}, "alternatives parameter is not a number"),
        ({"alternatives": 17}, "17 alternatives"),
        ({"api_key": {}}, "api_key must be a string"),
        ({"q": "…", "source": "auto"}, "cannot be detected"),
    ],
)
def test_a_wrong_parameter_is_400_with_a_sentence(server: RunningServer, change: dict[str, Any], message: str) -> None:
    question = {"q": TEXT, "source": "en", "target": "de"}
    answer = server.call("/translate", {**question, **change})
    assert answer.status == 400
    assert list(answer.json) == ["error"]
    assert message in answer.json["error"]


def test_languages_are_detected_and_a_front_end_finds_its_settings(server: RunningServer) -> None:
    found = server.call("/detect", {"q": "der alte Mann liest ein Buch"}).json
    assert found[0]["language"] == "de"
    assert 100 >= found[0]["confidence"] > found[1]["confidence"] >= 0
    assert all(each["confidence"] == 0 for each in server.call("/detect", {"q": "12:30"}).json)
    assert server.call("/detect", {}).status == 400
    settings = server.call("/frontend/settings").json
    assert settings["charLimit"] == 5000
    assert settings["keyRequired"] is settings["suggestions"] is False
    assert ".html" in settings["supportedFilesFormat"]
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert server.call("/suggest", {"q": "a", "s": "b", "source": "en", "target": "de"}).status == 403
    assert server.call("/spec").json == server.call("/openapi.json").json


def multipart(fields: dict[str, str], name: str | None = None, data: bytes = b"") -> tuple[bytes, dict[str, str]]:
    """The body and headers of a form, with a file if it has a name."""
    mark = "------------------------d74496d66958873e"
    parts = [f'--{mark}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
    body = "".join(parts).encode()
    if name is not None:
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body += head.encode() + data + b"\r\n"
    return body + f"--{mark}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={mark}"}


def test_the_php_library_of_nextcloud_sends_multipart_forms(server: RunningServer, expected: dict[str, str]) -> None:
    nothing, headers = multipart({})
    for body in (nothing, b""):
        codes = [each["code"] for each in server.call("/languages", body, method="GET", headers=headers).json]
        assert codes == ["de", "en"]
        assert server.call("/frontend/settings", body, method="GET", headers=headers).json["filesTranslation"]
        detected = server.call(f"/detect?{urlencode({'q': TEXT, 'api_key': ''})}", body, method="POST", headers=headers)
        assert detected.json[0]["language"] == "en"
    question = {"q": TEXT, "format": "html", "source": "en", "target": "de", "api_key": ""}
    body, headers = multipart(question)
    assert server.call("/translate", body, headers=headers).json["translatedText"] == expected[TEXT]
    body, headers = multipart({**question, "target": "xx"})
    assert "error" in server.call("/translate", body, headers=headers).json


def test_a_file_is_translated_and_downloaded(server: RunningServer, expected: dict[str, str]) -> None:
    languages = {"source": "auto", "target": "de"}
    body, headers = multipart(languages, "../../Bücher & Co.html", f"<p>{TEXT}</p>\n<pre>x  y</pre>".encode())
    answer = server.call("/translate_file", body, headers=headers)
    address = answer.json["translatedFileUrl"]
    assert address.startswith(f"{server.address}/download_file/")
    file = server.call(address.removeprefix(server.address))
    assert expected[TEXT] in file.body.decode()
    assert file.headers["content-disposition"].startswith("attachment;")
    assert file.headers["content-disposition"].endswith("B%C3%BCcher_Co.html")
    assert "/" not in address.partition("/download_file/")[2]
    for wrong in ("/download_file/x.html", "/download_file/..%2F..%2Fetc%2Fpasswd", address[:-6]):
        assert server.call(wrong.removeprefix(server.address)).status == 404
    body, headers = multipart(languages, "tune.mp3", b"x")
    refused = server.call("/translate_file", body, headers=headers)
    assert refused.status == 400
    assert ".html" in refused.json["error"]
    assert server.call("/translate_file", {"source": "en", "target": "de"}).status == 400


# --- OpenNMT-py -------------------------------------------------------------------------------------------------------


def test_opennmt_answers_ranks_of_entries(server: RunningServer, expected: dict[str, str]) -> None:
    models = server.call("/translator/models").json
    assert [(model["model_id"], model["models"]) for model in models] == [(0, ["en-de"]), (1, ["de-en"])]
    assert server.call("/translator/health").json == {"status": "ok"}
    question = [{"src": TEXT, "id": 0}, {"src": OTHER, "id": 1}, {"src": ""}]  # the first item chooses the model
    # The content type of curl -d, which OpenNMT-py does not look at either.
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    (best,) = server.call("/translator/translate", json.dumps(question).encode(), headers=headers).json
    assert [entry["src"] for entry in best] == [TEXT, OTHER, ""]
    assert [entry["tgt"] for entry in best] == [expected[TEXT], expected[OTHER], ""]
    assert all(entry["n_best"] == 1 and entry["pred_score"] <= 0 for entry in best)
    ranks = server.call("/translator/translate", [{"src": TEXT, "id": "en-de", "n_best": 3}, {"src": OTHER}]).json
    assert [len(rank) for rank in ranks] == [2, 2, 2]
    assert ranks[0] == [{**entry, "n_best": 3} for entry in best[:2]]
    for column in zip(*ranks, strict=True):
        assert len({entry["tgt"] for entry in column}) == 3
        scores = [entry["pred_score"] for entry in column]
        assert all(isinstance(score, float) for score in scores)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[", b"[]", b"{}", b"7", b'["a"]', b"[{}]", b'[{"src": 7}]', b"\xff", b"[" * 5000, b'[{"src": "\\ud800"}]'),
        *(b'[{"src": "a", "id": 9}]', b'[{"src": "a", "id": []}]'),
        *(b'[{"src": "a", "n_best": 0}]', b'[{"src": "a", "n_best": 99}]'),
    ],
)
def test_opennmt_answers_a_wrong_request_with_200_and_an_object(server: RunningServer, body: bytes) -> None:
    answer = server.call("/translator/translate", body)
    assert answer.status == 200
    assert answer.json["status"] == "error"
    assert isinstance(answer.json["error"], str)


def test_opennmt_keeps_the_status_of_a_body_that_is_too_long(server: RunningServer) -> None:
    answer = server.call("/translator/translate", b"[" + b" " * (4 << 20) + b"]")
    assert (answer.status, answer.json["status"]) == (413, "error")
    assert server.call("/translator/nothing").status == 404

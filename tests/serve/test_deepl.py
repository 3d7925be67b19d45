"""The API of DeepL: its own client (parity), the requests of Weblate, and what is refused."""

import asyncio
import html
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nasty
from live_server import Answer, RunningServer, wait_until
from seqloom.serve.document_jobs import DocumentJobs, JobResult
from seqloom.serve.files import FileStore
from seqloom.serve.glossaries import GlossaryStore, StoredGlossary
from seqloom.serve.http import ServerState
from seqloom.serve.keys import Keys, Rates
from seqloom.serve.metrics import Metrics
from seqloom.serve.refusal import Refusal, bad_request
from seqloom.serve.settings import ServeConfig

TEXT = "the old man reads a book."
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def plain_translation(server: RunningServer, text: str, *, source: str = "en", target: str = "de") -> str:
    """What another dialect answers."""
    answer = server.call("/translate", {"q": text, "source": source, "target": target})
    return str(answer.json["translatedText"])


def make_glossary(server: RunningServer, entries: str, **changes: Any) -> Answer:
    """Create a glossary from English to German."""
    fields = {"name": "terms", "source_lang": "en", "target_lang": "de", "entries": entries, "entries_format": "tsv"}
    return server.call("/v2/glossaries", {**fields, **changes})


# --- the client -------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(server: RunningServer) -> Any:
    deepl = pytest.importorskip("deepl", reason="deepl is installed by `make parity`")
    return deepl.Translator("any-key", server_url=server.address)


@pytest.mark.parity
def test_the_client_translates_texts_and_lists(server: RunningServer, client: Any) -> None:
    expected = plain_translation(server, TEXT)
    single = client.translate_text(TEXT, source_lang="EN", target_lang="DE")
    assert (single.text, single.detected_source_lang, single.billed_characters) == (expected, "EN", len(TEXT))
    several = client.translate_text([TEXT, "a dog"], target_lang="de", formality="prefer_more", split_sentences="0")
    assert [result.text for result in several] == [expected, plain_translation(server, "a dog")]
    assert several[0].detected_source_lang == "EN"
    back = client.translate_text("der alte mann liest ein buch.", source_lang="DE", target_lang="EN-US")
    assert back.text == plain_translation(server, "der alte mann liest ein buch.", source="de", target="en")


@pytest.mark.parity
def test_the_client_carries_tags_over(client: Any) -> None:
    text = '<p>the <i>old</i> man &amp; <x id="1">his very own words</x> reads</p>'
    found = client.translate_text(text, source_lang="EN", target_lang="DE", tag_handling="xml", ignore_tags=["x"])
    for part in ("<p>", "<i>", "</i>", '<x id="1">his very own words</x>', "</p>"):
        assert found.text.count(part) == 1
    parts = client.translate_text(
        "<s>a dog</s><s>the old man</s>", source_lang="EN", target_lang="DE", tag_handling="xml", splitting_tags="s,q"
    )
    first, second = (
        client.translate_text(each, source_lang="EN", target_lang="DE") for each in ("a dog", "the old man")
    )
    assert parts.text == f"<s>{first.text}</s><s>{second.text}</s>"
    page = client.translate_text(
        "<p>a dog</p><code>a dog</code>", source_lang="EN", target_lang="DE", tag_handling="html"
    )
    assert page.text == f"<p>{first.text}</p><code>a dog</code>"


@pytest.mark.parity
def test_the_client_lists_languages_and_counts_characters(client: Any) -> None:
    assert {each.code: each.name for each in client.get_source_languages()} == {"EN": "English", "DE": "German"}
    targets = {each.code: each.supports_formality for each in client.get_target_languages()}
    assert targets == {"DE": False, "EN-GB": False, "EN-US": False}
    pairs = {(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()}
    assert pairs == {("en", "de"), ("de", "en")}
    before = client.get_usage()
    client.translate_text(TEXT, source_lang="EN", target_lang="DE")
    after = client.get_usage()
    assert after.character.count == before.character.count + len(TEXT)
    assert not after.any_limit_reached


@pytest.mark.parity
def test_the_client_makes_uses_and_deletes_a_glossary(client: Any) -> None:
    entries = {"old man": "Zebra", "book": "Garten"}
    made = client.create_glossary("mine", "EN", "DE", entries)
    assert (made.name, made.ready, made.source_lang, made.target_lang, made.entry_count) == (
        "mine",
        True,
        "EN",
        "DE",
        2,
    )
    assert made.glossary_id in [each.glossary_id for each in client.list_glossaries()]
    assert client.get_glossary(made.glossary_id).creation_time == made.creation_time
    assert client.get_glossary_entries(made) == entries
    without = client.translate_text(TEXT, source_lang="EN", target_lang="DE").text
    found = client.translate_text_with_glossary(TEXT, made).text
    assert "Zebra" in found
    assert "Garten" in found
    assert "Zebra" not in without
    assert "Garten" not in without
    assert client.translate_text("a dog", source_lang="EN", target_lang="DE", glossary=made).text == (
        client.translate_text("a dog", source_lang="EN", target_lang="DE").text
    )
    other = client.create_glossary_from_csv("csv", "EN", "DE", '"old man",Vogel,en,de\nbook,"Garten, fein"\n')
    both = client.translate_text(TEXT, source_lang="EN", target_lang="DE", glossary_ids=[made, other]).text
    assert "Zebra" in both
    assert "Vogel" not in both
    for each in (made, other):
        client.delete_glossary(each)
    assert made.glossary_id not in [each.glossary_id for each in client.list_glossaries()]


@pytest.mark.parity
def test_the_client_raises_its_own_errors(server: RunningServer, client: Any) -> None:
    import deepl

    with pytest.raises(deepl.DeepLException, match="the target language 'xx' is not supported"):
        client.translate_text(TEXT, target_lang="XX")
    with pytest.raises(deepl.DeepLException, match="formality is not supported"):
        client.translate_text(TEXT, target_lang="DE", formality="more")
    with pytest.raises(deepl.DeepLException, match="no glossary") as unknown:
        client.translate_text(TEXT, source_lang="EN", target_lang="DE", glossary="no-such-glossary")
    assert unknown.value.http_status_code == 400
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary("no-such-glossary")
    with pytest.raises(deepl.DeepLException, match="not supported for this pair"):
        client.create_glossary("mine", "EN", "FR", {"a": "b"})
    with pytest.raises(deepl.DeepLException, match="Glossary not found, message: there is nothing at this address"):
        deepl.DeepLClient("any-key", server_url=server.address).list_multilingual_glossaries()


@pytest.mark.parity
def test_the_client_translates_documents(server: RunningServer, client: Any, tmp_path: Path) -> None:
    german = {text: plain_translation(server, text) for text in (TEXT, "a dog")}
    given, made = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text(f"{TEXT}\n\n  a dog\n", encoding="utf-8")
    before = client.get_usage().character.count
    status = client.translate_document_from_filepath(given, made, source_lang="EN", target_lang="DE")
    assert status.done
    assert status.billed_characters == len(TEXT) + len("  a dog")
    assert client.get_usage().character.count == before + status.billed_characters
    assert made.read_text(encoding="utf-8") == f"{german[TEXT]}\n\n  {german['a dog']}\n"
    page = '<!doctype html><p class="a">{}</p><script>a dog</script>'
    handle = client.translate_document_upload(page.format("a dog"), target_lang="DE", filename="a.html")
    assert client.translate_document_wait_until_done(handle).done
    for _ in range(2):  # it can be fetched again
        found = client.translate_document_download(handle).content.decode()
        assert found == page.format(german["a dog"])


@pytest.mark.parity
def test_the_client_translates_word_documents_with_a_glossary(client: Any, tmp_path: Path) -> None:
    docx = pytest.importorskip("docx", reason="python-docx is installed by `make parity`")
    document = docx.Document()
    document.add_heading("a dog", 1)
    document.add_paragraph("the old man ").add_run("reads").bold = True
    document.save(str(tmp_path / "in.docx"))
    glossary = client.create_glossary("documents", "EN", "DE", {"old man": "Zebra"})
    client.translate_document_from_filepath(
        tmp_path / "in.docx", tmp_path / "out.docx", source_lang="EN", target_lang="DE", glossary=glossary
    )
    client.delete_glossary(glossary)
    found = docx.Document(str(tmp_path / "out.docx"))
    assert [each.style.name for each in found.paragraphs] == [each.style.name for each in document.paragraphs]
    assert found.paragraphs[0].text == client.translate_text("a dog", source_lang="EN", target_lang="DE").text
    assert "Zebra" in found.paragraphs[1].text


@pytest.mark.parity
def test_the_client_learns_why_a_document_was_not_translated(client: Any, tmp_path: Path) -> None:
    import deepl

    with pytest.raises(deepl.DeepLException, match=r"format is not supported; the endings are .*\.docx.*\.txt"):
        client.translate_document_upload(b"%PDF", source_lang="EN", target_lang="DE", filename="a.pdf")
    with pytest.raises(deepl.DeepLException, match="leave out output_format"):
        client.translate_document_upload(
            b"a dog", source_lang="EN", target_lang="DE", filename="a.txt", output_format="docx"
        )
    (tmp_path / "a.docx").write_bytes(b"PK not a document")
    with pytest.raises(deepl.DocumentTranslationException, match="docx") as broken:
        client.translate_document_from_filepath(
            tmp_path / "a.docx", tmp_path / "b.docx", source_lang="EN", target_lang="DE"
        )
    handle = broken.value.document_handle
    with pytest.raises(deepl.DeepLException, match="no document"):
        client.translate_document_get_status(deepl.DocumentHandle(handle.document_id, "0" * 64))


# --- Weblate ----------------------------------------------------------------------------------------------------------


class Weblate:
    """The requests of Weblate's DeepL class, within its 5 seconds each."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def get(self, path: str) -> Any:
        return self._answer(path, None, "GET")

    def post(self, path: str, fields: dict[str, Any]) -> Any:
        return self._answer(path, fields, "POST")

    def _answer(self, path: str, fields: dict[str, Any] | None, method: str) -> Any:
        headers = {
            "Authorization": "DeepL-Auth-Key any",
            "Accept": "application/json; charset=utf-8",
            "Referer": "https://weblate.example/",
        }
        answer = self._server.call(f"/v2/{path}", fields, method=method, headers=headers, timeout=5)
        assert answer.status < 400, answer.body
        return answer.json

    def translate(self, texts: list[str], source: str, target: str, glossary: str | None = None) -> list[str]:
        fields = {
            "text": texts,
            "source_lang": source,
            "target_lang": target,
            "formality": "default",
            "tag_handling": "xml",
            "ignore_tags": ["x"],
        }
        if glossary is not None:
            fields["glossary_id"] = glossary
        answer = self.post("translate", fields)
        return [answer["translations"][at]["text"] for at in range(len(texts))]

    def glossary_id(self, source: str, target: str, name: str, tsv: str) -> str:
        pairs = self.get("glossary-language-pairs")["supported_languages"]
        assert (source, target) in {(pair["source_lang"].upper(), pair["target_lang"].upper()) for pair in pairs}
        known = {each["name"]: each["glossary_id"] for each in self.get("glossaries")["glossaries"]}
        if name not in known:
            fields = {"name": name, "source_lang": source, "target_lang": target, "entries": tsv}
            self.post("glossaries", {**fields, "entries_format": "tsv"})
            known = {each["name"]: each["glossary_id"] for each in self.get("glossaries")["glossaries"]}
        return str(known[name])


def test_weblate_accepts_the_server_and_translates(server: RunningServer) -> None:
    weblate = Weblate(server)
    sources = {each["language"] for each in weblate.get("languages?type=source")}
    targets = {each["language"].upper() for each in weblate.get("languages?type=target")}
    assert "EN" in sources
    assert "DE" in targets
    assert weblate.translate(["test"], "en", "de") == [plain_translation(server, "test")]
    texts = [f'the <x id="4"></x> man reads <x id="20"></x> &quot;book {n}&quot; &lt;b&gt;' for n in range(20)]
    found = weblate.translate(texts, "EN", "DE")
    assert len(found) == 20
    for text in found:
        assert text.count('<x id="4"></x>') == text.count('<x id="20"></x>') == 1
        assert "<b>" not in text.replace('<x id="4"></x>', "")  # what was escaped stays so


def test_weblates_terminology_comes_true(server: RunningServer) -> None:
    weblate = Weblate(server)
    # A terminology of thousands, in which one term cannot be written by the model.
    tsv = "\n".join(
        [f"term {n}\tWort {n}" for n in range(3000)] + ["old man\tZebra", "book\t書籍", "fish & chips\tGarten"]
    )
    glossary = weblate.glossary_id("EN", "DE", "weblate:1:EN:DE:a1b2", tsv)
    assert weblate.glossary_id("EN", "DE", "weblate:1:EN:DE:a1b2", tsv) == glossary
    text = 'the old man <x id="4"></x> reads a book, fish &amp; chips.'
    (found,) = weblate.translate([text], "EN", "DE", glossary)
    (without,) = weblate.translate([text], "EN", "DE")
    for term in ("Zebra", "Garten"):
        assert term in html.unescape(found)
        assert term not in html.unescape(without)
    assert found.count('<x id="4"></x>') == 1
    skipped = [event for event in server.events() if event["event"] == "terms_skipped"]
    assert skipped[-1]["terms"] == 1
    deleted = server.call(f"/v2/glossaries/{glossary}", method="DELETE", timeout=5)
    assert (deleted.status, deleted.body) == (204, b"")
    assert server.call(f"/v2/glossaries/{glossary}", method="DELETE").status == 404


def test_a_document_needs_its_key(server: RunningServer) -> None:
    border = "a7f3"
    parts = [f'name="{name}"\r\n\r\n{value}' for name, value in (("target_lang", "DE"), ("source_lang", "EN"))]
    parts.append('name="file"; filename="../../etc/a b.txt"\r\nContent-Type: text/plain\r\n\r\na dog')
    body = "".join(f"--{border}\r\nContent-Disposition: form-data; {part}\r\n" for part in parts) + f"--{border}--\r\n"
    headers = {"Content-Type": f"multipart/form-data; boundary={border}"}
    handle = server.call("/v2/document", body.encode(), headers=headers).json
    place, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    wait_until(lambda: server.call(place, key).json["status"] == "done")
    for path in (place, f"{place}/result"):
        assert server.call(path, {"document_key": "0" * 64}).status == 404
        assert server.call(path, {}).status == 400
    found = server.call(f"{place}/result", key)
    assert found.body.decode() == plain_translation(server, "a dog")
    assert found.headers["content-disposition"] == "attachment; filename*=UTF-8''a_b.txt"


def test_more_terms_than_a_translation_can_hold_do_not_lose_it(server: RunningServer) -> None:
    long = " ".join(["Donaudampfschifffahrtsgesellschaft"] * 30)
    identity = make_glossary(server, f"dog\t{long[:190]}").json["glossary_id"]
    fields = {"text": ["a dog", TEXT], "source_lang": "EN", "target_lang": "DE", "glossary_id": identity}
    answer = server.call("/v2/translate", fields)
    assert answer.status == 200
    texts = [each["text"] for each in answer.json["translations"]]
    assert texts == [plain_translation(server, "a dog"), plain_translation(server, TEXT)]
    assert server.call(f"/v2/glossaries/{identity}", method="DELETE").status == 204


@settings(max_examples=20)
@given(nasty.texts(longest=60), nasty.line(most=1, longest=9), st.sampled_from(["xml", "html"]))
def test_no_term_costs_a_translation(server: RunningServer, text: str, term: str, markup: str) -> None:
    pairs = {text[:4].strip(): term.strip(), "e": "Haus"}
    made = make_glossary(server, "\n".join(f"{source}\t{target}" for source, target in pairs.items()))
    assert made.status in (201, 400)
    if made.status == 201:
        identity = made.json["glossary_id"]
        fields = {"text": [text, "e"], "source_lang": "EN", "target_lang": "DE", "tag_handling": markup}
        answer = server.call("/v2/translate", {**fields, "glossary_id": identity})
        assert answer.status == 200, answer.body
        assert "Haus" in answer.json["translations"][1]["text"]
        server.call(f"/v2/glossaries/{identity}", method="DELETE")


# --- plain requests ---------------------------------------------------------------------------------------------------


def test_forms_and_queries_are_read_as_json_is(server: RunningServer) -> None:
    fields = [("text", TEXT), ("text", "a dog"), ("target_lang", "DE"), ("source_lang", "EN"), ("auth_key", "any")]
    form = server.call("/v2/translate", urllib.parse.urlencode(fields).encode(), headers=FORM)
    as_json = server.call("/v2/translate", {"text": [TEXT, "a dog"], "target_lang": "de", "source_lang": "en"})
    assert form.json == as_json.json
    single = server.call("/v2/translate", {"text": TEXT, "target_lang": "DE-AT", "source_lang": "en-GB"})
    assert single.json["translations"] == as_json.json["translations"][:1]
    query = server.call("/v2/languages?type=target").json
    assert server.call("/v2/languages", b"type=target", method="GET", headers=FORM).json == query
    assert server.call("/v2/languages", b"type=target", headers=FORM).json == query


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("translate", {"target_lang": "DE"}, 400, "text is missing"),
        ("translate", {"text": ["a"], "source_lang": "EN"}, 400, "target_lang is missing"),
        ("translate", {"text": [1], "source_lang": "EN", "target_lang": "DE"}, 400, "must be a string"),
        ("translate", {"text": ["a"] * 65, "source_lang": "EN", "target_lang": "DE"}, 400, "limit of 64"),
        ("translate", {"text": ["a"], "target_lang": "DE", "glossary_id": "a"}, 400, "needs source_lang"),
        ("translate", {"text": ["a"], "target_lang": "DE", "tag_handling": "sgml"}, 400, "xml or html"),
        ("translate", {"text": ["a"], "target_lang": "DE", "ignore_tags": [7]}, 400, "ignore_tags"),
        ("translate", {"text": ["a"], "target_lang": "DE", "style_id": "x"}, 400, "style_id is not supported"),
        ("translate", {"text": ["7"], "target_lang": "DE"}, 400, "cannot be detected"),
        ("languages", {"type": "both"}, 400, "source or target"),
        ("glossaries", {"name": "a", "source_lang": "en", "target_lang": "de"}, 400, "entries"),
        ("nothing", {}, 404, "nothing at this address"),
    ],
)
def test_refusals_are_sentences(
    server: RunningServer, path: str, fields: dict[str, Any], status: int, message: str
) -> None:
    answer = server.call(f"/v2/{path}", fields)
    assert answer.status == status
    assert message in answer.json["message"]


@pytest.mark.parametrize(
    ("entries", "form", "message"),
    [
        ("dog", "tsv", "entry 1 of the glossary must be two terms with a tab"),
        ("dog\tHund\nman\t", "tsv", "entry 2 of the glossary has an empty term"),
        ("dog\tHund\ndog\tKatze", "tsv", "entry 2 of the glossary has a source term"),
        ("dog\tHu\x07nd", "tsv", "control character"),
        ("a,b,c", "csv", "with a comma"),
        ('"a,b', "csv", "not valid CSV"),
        ("\n\n", "tsv", "entries"),
        ("dog\tHund", "xml", "tsv or csv"),
    ],
)
def test_entries_that_are_wrong_are_named(server: RunningServer, entries: str, form: str, message: str) -> None:
    answer = make_glossary(server, entries, entries_format=form)
    assert answer.status == 400
    assert message in answer.json["message"]


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_glossaries_are_limited_in_number_and_bytes() -> None:
    store = GlossaryStore(ServeConfig(glossaries=2, stored_bytes=10_000))

    def add(owner: str, entries: int) -> StoredGlossary:
        pairs = [(f"term {n}", "Wort") for n in range(entries)]
        return store.add(owner, "name", source="en", target="de", entries=pairs)

    first, _ = add("a", 3), add("a", 3)
    with pytest.raises(Refusal, match="2 glossaries already") as refused:
        add("a", 3)
    assert refused.value.status == 400
    with pytest.raises(Refusal, match=r"serve\.stored_bytes") as refused:
        add("b", 15)
    assert refused.value.status == 413
    assert not store.remove(first.identity, owner="b")
    assert store.remove(first.identity, owner="a")
    assert [each.owner for each in (*store.of("a"), add("b", 15))] == ["a", "b"]


def test_a_long_or_empty_term_is_kept_but_not_looked_for() -> None:
    pairs = [("x" * 201, "Wort"), ("\ufeff", "leer"), ("dog", "Hund")]
    stored = GlossaryStore(ServeConfig()).add("a", "name", source="en", target="de", entries=pairs)
    assert stored.entries == tuple(pairs)
    assert stored.glossary.terms == (("dog", "Hund"),)


def test_documents_are_accepted_requests_until_they_are_fetched_and_kept_for_a_while() -> None:
    limits = ServeConfig(stored_bytes=100, stored_seconds=0.2)
    state = ServerState(limits, Keys(), Rates(0), Metrics(), lambda *_args, **_fields: None)

    async def run() -> None:
        jobs = DocumentJobs(state, FileStore(most_bytes=100, seconds=60.0))
        goes_on = asyncio.Event()

        async def succeed() -> JobResult:
            await goes_on.wait()
            return JobResult(b"Hund", "a.txt", "text/plain", 3)

        async def fail() -> JobResult:
            raise bad_request("no such language")

        good = jobs.start(succeed, owner="a", size=60, describe=str)
        bad = jobs.start(fail, owner="a", size=30, describe=str)
        with pytest.raises(Refusal, match="too many documents") as refused:
            jobs.start(succeed, owner="b", size=50, describe=str)
        assert refused.value.status == 503
        await bad.finished.wait()
        assert (bad.status, bad.message, good.status) == ("error", "no such language", "translating")
        goes_on.set()
        await good.finished.wait()
        assert (good.status, good.characters, state.running) == ("done", 3, 2)
        good.fetched.set()
        bad.fetched.set()
        await asyncio.sleep(0.01)
        assert state.running == 0
        assert jobs.find(good.identity, good.key, owner="a") is good
        assert jobs.find(good.identity, good.key, owner="b") is None
        assert jobs.find(good.identity, bad.key, owner="a") is None
        await asyncio.sleep(0.25)
        assert jobs.find(good.identity, good.key, owner="a") is None

    asyncio.run(run())

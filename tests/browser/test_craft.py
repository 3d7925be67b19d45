"""What the page does when the text is hostile, the server errs or is gone, the screen small, the pointer missing."""

from pathlib import Path
from typing import Any

import pytest

from browser.conftest import PATIENCE, Watched, watched
from browser.made_up_server import Answers, made_up_server
from system.test_security_pages import PAYLOADS

pytestmark = pytest.mark.browser

TEXT = "A small house stands on a hill. The dog sees a wonderful tree"
LENSES = ("attention", "search", "reasons", "reach", "pieces")
SEEN = {
    "attention": ".heads .head",
    "search": ".beam-tree .node",
    "reasons": ".heat",
    "reach": ".profile",
    "pieces": ".piece",
    "sentences": "table.lines tbody tr",
    "runs": ".uplot",
    "write": ".bars li",
}


def curve(steps: int = 30) -> list[dict[str, Any]]:
    return [{"step": 10 * at, "loss": 5 / at, "norm": 1.0, "rate": 0.1, "bleu": at} for at in range(1, steps)]


def show(page: Watched, view: str, **state: Any) -> None:
    """Open a view or lens, with everything in it that it can have."""
    if view in LENSES:
        page.open(text=TEXT, lens=view, **state)
        page.page.locator(".word").first.wait_for()
    else:
        page.open(view=view, prompt="The small dog" if view == "write" else "", **state)
    if view == "sentences":
        page.page.locator(".button.strong").first.click()
    page.page.locator(SEEN[view]).first.wait_for()


def elements_that_load(page: Any) -> int:
    """Elements that no view has: whoever made them was not the page."""
    elements = page.locator("body :is(script, iframe, img, object, embed, link, base, meta, style, form[action])")
    return int(elements.count())


@pytest.mark.parametrize("payload", [" ".join(PAYLOADS[at::4]) for at in range(4)], ids=range(4))
def test_hostile_text_in_every_field_stays_text(made_up_page: Watched, answers: Answers, payload: str) -> None:
    answers.text, answers.runs = payload, [curve()]
    page = made_up_page.page
    made_up_page.open(text=TEXT, terms=[[payload, payload]], pairs=f"{payload}\t{payload}", prompt=payload)
    page.locator(".word").first.wait_for()
    for number, lens in enumerate(LENSES, start=1):
        page.keyboard.press(f"Alt+{number}")
        page.locator(SEEN[lens]).first.wait_for()
        assert elements_that_load(page) == 0
    page.locator(".word").first.click()
    page.locator(".rival").first.click()
    page.locator(".chip").wait_for()
    for view in ("Sentences", "Runs", "Write"):
        page.get_by_role("button", name=view, exact=True).click()
        if view == "Sentences":
            page.locator(".button.strong").first.click()
        page.locator(SEEN[view.lower()]).first.wait_for()
        assert elements_that_load(page) == 0
    answers.error = payload
    page.get_by_role("button", name="Translate", exact=True).click()
    page.locator("#source").fill(payload.replace("\x00", "") + TEXT)
    page.locator(".error").first.wait_for()
    assert elements_that_load(page) == 0
    # The browser itself logs the status of the answer.
    made_up_page.problems[:] = [each for each in made_up_page.problems if "status of 400" not in each]


def test_hostile_text_in_a_file_and_in_an_export_stays_text(made_up_page: Watched, tmp_path: Path) -> None:
    page = made_up_page.page
    made_up_page.open()
    file = tmp_path / "<img src=x onerror=alert(1)>.txt"
    file.write_text("".join(PAYLOADS[:8]) + " =1+1", encoding="utf-8")
    page.locator("input[type=file]").set_input_files(file)
    page.locator(".word").first.wait_for()
    page.locator(".heads .head").first.wait_for()
    snapshot = made_up_page.saved("Page (opens offline)")
    table = made_up_page.saved("CSV")
    assert not any(cell.startswith(("=", "+", "@")) for line in table.splitlines() for cell in line.split(","))
    assert "<svg" in made_up_page.saved("SVG")
    saved = tmp_path / "snapshot.html"
    saved.write_text(snapshot, encoding="utf-8")
    context = page.context.browser.new_context(offline=True)  # type: ignore[union-attr]
    other, problems = context.new_page(), []
    other.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    other.on("request", lambda request: request.url.startswith("file:") or problems.append(request.url))
    other.goto(saved.as_uri())
    assert other.locator("svg").count() == 1
    assert "onerror=alert(1)" in other.locator("p").first.inner_text()
    assert other.locator("script, img").count() == 0
    context.close()
    assert problems == []
    with page.expect_download() as download:
        menu = page.locator(".figure .menu").first
        menu.locator("summary").click()
        menu.get_by_role("button", name="PNG").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_page_of_another_origin_can_start_nothing(chromium: Any, real: Any) -> None:
    policy = real.call("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    context = chromium.new_context()
    page, statuses = context.new_page(), []
    page.on("response", lambda answer: answer.url.startswith(real.address) and statuses.append(answer.status))
    page.route("http://other.test/", lambda route: route.fulfill(body="<p>another page", content_type="text/html"))
    page.goto("http://other.test/")
    before = real.metric("seqloom_characters_total")
    page.evaluate(
        """async (address) => {
          const body = JSON.stringify({ model: "en-de", text: "A tree.", q: "A tree.", source: "en", target: "de" });
          const kinds = [{ "content-type": "text/plain" }, { "content-type": "application/json", "x-seqloom": "1" }];
          for (const path of ["/api/translate", "/api/look", "/api/models", "/api/runs"])
            for (const headers of kinds)
              for (const mode of ["no-cors", "cors"]) {
                const options = { method: path.endsWith("s") ? "GET" : "POST", headers, mode };
                if (options.method === "POST") options.body = body;
                await fetch(address + path, options).catch(() => null);
              }
        }""",
        real.address,
    )
    assert all(status in (204, 403, 405, 415) for status in statuses)
    assert real.metric("seqloom_characters_total") == before
    page.set_content(f'<iframe src="{real.address}/"></iframe>')
    page.wait_for_timeout(500)
    assert all("Seqloom" not in frame.title() for frame in page.frames[1:])
    context.close()


def test_an_error_keeps_the_text_and_can_be_tried_again(made_up_page: Watched, answers: Answers) -> None:
    page = made_up_page.page
    made_up_page.open()
    answers.error = "the line is too long by 3 characters"
    page.locator("#source").fill(TEXT)
    page.get_by_text(answers.error).wait_for()
    assert page.locator("#source").input_value() == TEXT
    made_up_page.problems.clear()  # the browser logs the status 400
    answers.error = ""
    page.get_by_role("button", name="Retry").click()
    page.locator(".word").first.wait_for()


def test_a_server_that_is_gone_comes_back_with_the_text_kept(chromium: Any) -> None:
    answers = Answers()
    with made_up_server(answers) as address, watched(chromium, address) as page:
        page.open()
        port = int(address.rpartition(":")[2])
        page.page.route("**/*", lambda route: route.abort())  # nobody answers
        page.page.locator("#source").fill(TEXT)
        page.page.get_by_text("The server does not answer").wait_for()
        assert page.page.locator("#source").input_value() == TEXT
        page.page.unroute("**/*")
        page.page.locator(".word").first.wait_for()
        assert page.page.get_by_text("The server does not answer").count() == 0
        assert port
        page.problems.clear()  # the browser logs requests that fail


def test_an_older_call_is_aborted_and_the_old_translation_fades(made_up_page: Watched, answers: Answers) -> None:
    page, aborted = made_up_page.page, []
    page.on("requestfailed", lambda request: aborted.append(request.url))
    made_up_page.open(text="They sleep")
    page.locator(".word").first.wait_for()
    answers.delay = 1.5
    page.locator("#source").fill("A dog")
    page.locator(".writing.stale").wait_for()
    page.wait_for_timeout(600)
    answers.delay = 0.0
    page.locator("#source").fill("A dog sleeps")
    made_up_page.until("document.querySelector('[data-translation]').textContent === 'speels god A'")
    assert any(url.endswith("/api/translate") for url in aborted)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(
    made_up_page: Watched, answers: Answers, theme: str, language: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    answers.runs = [curve(), curve(20)]
    found = []
    for view in SEEN:
        show(made_up_page, view, theme=theme, language=language)
        made_up_page.page.wait_for_timeout(400)
        for each in axe.run(made_up_page.page).response["violations"]:
            if each["impact"] in ("serious", "critical"):
                found.append((view, each["id"], [node["html"][:120] for node in each["nodes"]][:3]))
    made_up_page.open(text=TEXT, theme=theme, language=language)
    made_up_page.page.locator(".word").first.click()
    made_up_page.page.locator(".rival").first.wait_for()
    for each in axe.run(made_up_page.page).response["violations"]:
        if each["impact"] in ("serious", "critical"):
            found.append(("rivals", each["id"], [node["html"][:120] for node in each["nodes"]][:3]))
    assert found == []


def test_each_lens_can_be_walked_by_keyboard_alone(made_up_page: Watched) -> None:
    page, press = made_up_page.page, made_up_page.page.keyboard.press
    made_up_page.open()
    press("/")
    page.keyboard.type("A small house stands")
    page.locator(".word").first.wait_for()

    def tab_to(selector: str, *, most: int = 60) -> None:
        for _ in range(most):
            if page.evaluate("(selector) => document.activeElement?.matches(selector)", selector):
                return
            press("Tab")
        raise AssertionError(f"{selector} cannot be reached by Tab")

    tab_to(".word")
    press("ArrowRight")
    press("Enter")
    page.locator(".rival").first.wait_for()
    press("ArrowDown")
    press("Escape")
    assert page.locator(".rival").count() == 0
    assert page.evaluate("document.activeElement.matches('.word')")
    press("Enter")
    press("Enter")
    page.locator(".chip").wait_for()

    press("Alt+1")
    page.locator(".head").first.wait_for()
    tab_to("[role=application]")
    press("ArrowRight")
    press("ArrowDown")
    assert page.locator(".readout b").inner_text()
    tab_to(".head")
    press("ArrowRight")
    press("Enter")
    assert made_up_page.state()["head"] == "0.1"
    page.get_by_role("button", name="Switch 1.2 off").wait_for()

    press("Alt+2")
    page.locator(".beam-tree .node").first.wait_for()
    tab_to(".beam-tree .node")
    press("ArrowRight")
    press("ArrowUp")
    assert page.locator(".panel .path").inner_text()
    tab_to(".link")
    press("Enter")
    assert page.locator(".node.faint").count() > 0

    press("Alt+3")
    tab_to("[role=application]")
    press("ArrowDown")
    press("Alt+4")
    page.locator(".profile").wait_for()
    tab_to("summary")
    press("Alt+5")
    page.locator(".piece").first.wait_for()
    press("ArrowLeft")
    assert made_up_page.state()["lens"] == "reach"
    press("?")
    assert page.locator("dialog[open]").count() == 1
    press("Escape")
    assert page.locator("dialog[open]").count() == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_never_scrolls_sideways(chromium: Any, made_up: str, answers: Answers, language: str) -> None:
    answers.text, answers.error, answers.delay, answers.runs = "", "", 0.0, [curve()]
    with watched(chromium, made_up, viewport={"width": 390, "height": 844}, has_touch=True) as page:
        for view in SEEN:
            show(page, view, language=language, compare=["small"] if view == "search" else [], other="small")
            width = page.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, view
        page.open(text="W" * 300, language=language)
        page.page.locator(".word").first.wait_for()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_less_motion_is_obeyed_and_invisible_characters_are_seen(chromium: Any, made_up: str, answers: Answers) -> None:
    answers.text, answers.runs = "", []
    with watched(chromium, made_up, reduced_motion="reduce") as page:
        page.open(text="zero\u200bwidth a\u202ebc שלום sleeps", lens="pieces")
        page.page.locator(".piece").first.wait_for()
        names = page.page.locator(".invisible").all_inner_texts()
        assert "U+200B" in names
        assert "U+202E" in names
        assert page.page.locator(".piece.rtl").count() > 0
        durations = page.page.locator(".word").first.evaluate("(each) => getComputedStyle(each).transitionDuration")
        assert durations in ("0s", "none")


def test_a_run_shows_its_new_step_and_a_resume_goes_back(made_up_page: Watched, answers: Answers) -> None:
    answers.runs = [curve(10)]
    show(made_up_page, "runs")
    page = made_up_page.page
    page.get_by_text("step 90 of 2000").wait_for()
    answers.runs[0].append({"step": 100, "loss": 0.125})
    page.locator(".readout", has_text="0.125").first.wait_for(timeout=PATIENCE)
    answers.runs[0] += [{"rewind": 50}, {"step": 60, "loss": 0.75}]
    page.locator(".readout", has_text="0.75").first.wait_for()
    page.locator("details.table summary").first.click()
    steps = page.locator("details.table tbody tr td:nth-child(2)").all_inner_texts()
    assert steps == ["10", "20", "30", "40", "50", "60"]

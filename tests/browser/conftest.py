"""A real Chromium before the page: of tiny models behind a real server, and of made-up answers."""

import json
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seqloom
from browser.made_up_server import Answers, made_up_server
from live_server import RunningServer, running_server, wait_until
from tiny_runs import TINY, TINY_LM, write_text

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE = 60_000
"""Milliseconds that a busy machine may take for what is usually there at once."""

WATCH = (
    "addEventListener('securitypolicyviolation', (event) => (window.violations ??= []).push(event.violatedDirective))"
)


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """The Chromium of the system."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser installs playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed; on Debian and Ubuntu: apt install chromium fonts-noto-cjk")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and everything in it that should not have happened."""

    page: "Page"
    address: str
    problems: list[str] = field(default_factory=list)

    def open(self, **state: Any) -> None:
        """Open the page in a state."""
        from urllib.parse import urlencode

        parts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in state.items()}
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#{urlencode(parts)}")
        self.page.locator("nav button").first.wait_for()

    def api(self, path: str, body: Any = None) -> Any:
        """The answer of the server itself."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.address}/api/{path}", data, {"x-seqloom": "1", "content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def saved(self, name: str, *, figure: int = 0) -> str:
        """What an export of a figure writes."""
        menu = self.page.locator(".figure .menu").nth(figure)
        menu.locator("summary").click()
        with self.page.expect_download() as download:
            menu.get_by_role("button", name=name).click()
        return Path(download.value.path()).read_text(encoding="utf-8")

    def until(self, expression: str, argument: Any = None, *, seconds: float = PATIENCE / 1000) -> None:
        """Wait for a condition. Playwright's own way needs eval, which the policy of the page forbids."""
        wait_until(lambda: self.page.evaluate(expression, argument), seconds=seconds)

    def state(self) -> dict[str, str]:
        """The state in the address."""
        from urllib.parse import parse_qsl

        return dict(parse_qsl(self.page.evaluate("location.hash.slice(1)")))


@contextmanager
def watched(browser: "Browser", address: str, **options: Any) -> Iterator[Watched]:
    """A page in a context of its own. In the end nothing may have gone wrong."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, "locale": "en-GB", **options})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    found = Watched(page, address)
    page.add_init_script(WATCH)
    page.on("console", lambda message: message.type == "error" and found.problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: found.problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (found.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def look_at(request: Any) -> None:
        if not request.url.startswith((address, "data:", "blob:", "about:")):
            found.problems.append(f"request: {request.url}")

    page.on("request", look_at)
    try:
        yield found
        found.problems += [f"policy: {each}" for each in page.evaluate("window.violations ?? []")]
        assert found.problems == []
    finally:
        context.close()


Opening = Callable[..., Watched]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, corpus: tuple[list[str], list[str]]) -> Path:
    """Runs of two networks that translate and of a language model."""
    folder = tmp_path_factory.mktemp("runs")
    train, dev = corpus
    seqloom.train(
        train=train, dev=dev, out=folder / "en-de", overrides=[*TINY, "model.decoder_layers=2", "search.beam=4"]
    )
    recurrent = [each for each in TINY if not each.startswith("model.") or each.startswith("model.width")]
    seqloom.train(
        train=train, dev=dev, out=folder / "gru", overrides=[*recurrent, "model.kind=seq2seq", "search.beam=4"]
    )
    text = write_text(folder / "text.en")
    seqloom.train(train=[str(text)], out=folder / "lm", overrides=["model.kind=rnn_lm", *TINY_LM])
    return folder


@pytest.fixture(scope="session")
def real(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real server of all of them."""
    words = [f"{name}={tiny_folder / name}" for name in ("en-de", "gru", "lm")]
    with running_server(words, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def real_page(chromium: "Browser", real: RunningServer) -> Iterator[Watched]:
    """A page of the real server."""
    with watched(chromium, real.address) as page:
        yield page


@pytest.fixture(scope="session")
def answers() -> Answers:
    """What the made-up server says; each test sets it as it needs."""
    return Answers()


@pytest.fixture(scope="session")
def made_up(answers: Answers) -> Iterator[str]:
    """The address of the made-up server."""
    with made_up_server(answers) as address:
        yield address


@pytest.fixture
def made_up_page(chromium: "Browser", made_up: str, answers: Answers) -> Iterator[Watched]:
    """A page of the made-up server, which says harmless things at first."""
    answers.text, answers.error, answers.delay, answers.runs = "", "", 0.0, []
    answers.asked.clear()
    with watched(chromium, made_up) as page:
        yield page

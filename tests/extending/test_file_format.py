"""A file format in one file, passed in as an argument or added to the package by one line."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from extending.conftest import EXAMPLES, TOP
from seqloom.core.errors import DataError, UsageError
from seqloom.data.corpus import open_corpus
from seqloom.data.plain_text import TextCorpus, read_one_language
from seqloom.data.store import Store
from seqloom.runs.train import resume, train
from seqloom.text.formats.readers import FORMATS, open_catalogue
from tiny_runs import TINY, write_corpus

TEXT = "Guten Tag. ||| Good day.\nallein |||\nDanke. ||| Thank you.\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "train.bars").write_text(TEXT, encoding="utf-8")
    return tmp_path / "train.bars"


def test_a_format_from_outside_is_read_when_it_is_passed_in(example: Callable[[str], ModuleType], path: Path) -> None:
    formats = (*FORMATS, example("file_format").BARS)
    corpus = open_corpus([path], formats=formats)
    assert [(line.source, line.target) for line in corpus] == [("Guten Tag.", "Good day."), ("Danke.", "Thank you.")]
    assert any("1 segments without a translation" in notice for notice in corpus.notices)
    assert [line.text for line in TextCorpus([path], formats=formats)] == ["Good day.", "Thank you."]
    assert list(read_one_language(path, formats=formats)) == ["Good day.", "Thank you."]
    with pytest.raises(UsageError, match="files of the format BARS can be read, but not filled"):
        open_catalogue(path, formats=formats)
    with pytest.raises(UsageError, match="a source file and a target file are needed"):
        open_corpus([path])


def test_a_run_trains_and_resumes_on_files_of_a_format_from_outside(
    example: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    (tmp_path / "text").mkdir()
    for names in write_corpus(tmp_path):
        source, target = (Path(name).read_text(encoding="utf-8").splitlines() for name in names)
        pairs = zip(source, target, strict=True)
        path = tmp_path / "text" / f"{Path(names[0]).stem}.bars"
        path.write_text("".join(f"{one} ||| {other}\n" for one, other in pairs), encoding="utf-8")
    formats = [example("file_format").BARS]
    run, dev = tmp_path / "run", str(tmp_path / "text" / "dev.bars")
    trained = train(None, TINY, out=run, train=[str(tmp_path / "text")], dev=[dev], formats=formats)
    assert trained is not None
    assert len(Store.open(run / "data" / "train")) == 120
    os.utime(dev)  # the text is read again
    resumed = resume(run, ["training.steps=8"], formats=formats)
    assert resumed is not None
    assert resumed.outcome.step == 8


def test_its_errors_name_file_and_line(example: Callable[[str], ModuleType], path: Path) -> None:
    path.write_text("no bars\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"{path}:1: expected source \|\|\| target"):
        open_corpus([path], formats=(example("file_format").BARS,))


def test_the_section_shows_the_file() -> None:
    page = (TOP / "docs" / "extending.md").read_text(encoding="utf-8")
    assert f"```python\n{(EXAMPLES / 'file_format.py').read_text(encoding='utf-8')}```" in page


def test_one_line_makes_it_part_of_the_package(contribute: Callable[..., str], path: Path) -> None:
    script = (
        "from pathlib import Path\nfrom seqloom.data.corpus import open_corpus\n"
        f"print(*[line.target for line in open_corpus([Path({str(path)!r})])])"
    )
    place = "src/seqloom/text/formats/bars.py"
    assert contribute("file_format", section="A file format", place=place, script=script) == "Good day. Thank you.\n"

"""Sequence-level distillation (Kim and Rush, 2016): a small model learns from what a large one writes.

    best      the teacher's translation of each source
    closest   of its n best translations, the one with the highest BLEU against the reference: still what the teacher
              would write, but nearer to the truth (their "interpolation")

A search finds one translation where people write many, so its text is easier to learn, and a small decoder loses less
by it than by the references themselves. Such a student also loses little without a beam.

run/teacher/teacher.json             who the teachers are, with their hashes, and how they have translated
run/teacher/00000.txt …              their translations, in parts: an interrupted run translates none of them again
run/teacher/{train,dev}.{source,target}   what the student learns from and is measured on
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqloom.apps.request import Request
from seqloom.apps.search_settings import settings_for
from seqloom.apps.translator import Translation, open_translator
from seqloom.core.arguments import as_names, as_path, require_callable
from seqloom.core.config import read_config_file, resolve
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Listener, ignore, notice, phase
from seqloom.core.files import sha256_of, write_atomically
from seqloom.data.corpus import Line, Lines, open_corpus
from seqloom.data.plain_text import TextCorpus
from seqloom.metrics.translation import closest
from seqloom.runs.back_translation import translate_in_parts, write_pairs
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import find_model, require_translator
from seqloom.runs.prepare import flat_settings, require_new
from seqloom.runs.train import Trained, resume, train
from seqloom.runs.translation import TEACHER, open_pairs, read_teacher
from seqloom.search.settings import SearchConfig
from seqloom.text.formats.readers import holds_both_sides
from seqloom.text.normalise import is_blank
from seqloom.training.run_guard import locked

Targets = Literal["best", "closest"]

MAX_CANDIDATES = 8
"""Translations among which the closest is chosen, at most: more are of a quality that is not worth learning."""

STUDENT_SEARCH: Mapping[str, Any] = {"beam": 1}
"""How a student translates, unless the settings name another way."""


def distill(
    teachers: Sequence[Path | str],
    files: Sequence[str],
    *,
    out: Path | str,
    dev: Sequence[str] = (),
    config: Path | str | None = None,
    overrides: Sequence[str] = (),
    targets: Targets | None = None,
    keep_gold: bool = False,
    teacher_settings: Sequence[str] = (),
    listener: Listener = ignore,
) -> Trained | None:
    """Train a student on the translations of a teacher, or of several that decide together, and leave it in `out`.

    `files` are sources, or pairs; with pairs, `targets` are the closest to the references by default. `keep_gold` adds
    the pairs themselves. `config` and `overrides` are settings of the student; `teacher_settings`, such as
    "search.beam=8", are those of the search and the languages of the teachers. What an earlier call with the same
    arguments has done in `out` is not done again.
    """
    run, file = as_path(out, "out"), None if config is None else as_path(config, "config")
    folders = [Path(name) for name in as_names([str(each) for each in teachers], "teachers", example='["run"]')]
    files, dev = as_names(files, "files", example='["train.de"]'), as_names(dev, "dev", example='["dev.de", "dev.en"]')
    require_callable(listener, "listener")
    if not folders:
        raise UsageError("name the model, or the models, that the student learns from")
    if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
        raise UsageError("distillation cannot be shared by several ranks; start one process")
    student = resolve(RunConfig, file=file, overrides=overrides)
    _require_student(student)
    own = ("data.encoding=", "data.on_bad_utf8=")  # of the files that are read here
    given = [each for each in overrides if not each.startswith(own)]
    search = as_names(teacher_settings, "teacher_settings", example='["search.beam=8"]')
    job = _plan(folders, search, student, files, dev, targets=targets, keep_gold=keep_gold, listener=listener)
    if (run / "run.json").is_file():
        job.require_same(run)
        return resume(run, given, listener=listener)
    require_new(run)
    if (run / TEACHER / f"{TEACHER}.json").exists():
        job.require_same(run)
    try:
        _write_pairs(run, job, listener=listener)
    except BaseException as error:
        if not isinstance(error, Exception):  # a signal
            notice(listener, f"what was translated is kept in {run / TEACHER}; continue with the same command")
        raise
    small = student_settings(student, file, overrides)
    if small:
        notice(listener, f"a student, for quick translation: {', '.join(small)}")
    codes = [f"data.{side}={code}" for side, code in zip(("source", "target"), job.languages, strict=True) if code]
    settings = [*small, *given, *codes, "data.encoding=utf-8"]
    names = [[str(run / TEACHER / f"{name}.{side}") for side in ("source", "target")] for name in ("train", "dev")]
    return train(file, settings, out=run, train=names[0], dev=names[1], listener=listener)


def student_settings(student: RunConfig, file: Path | None, overrides: Sequence[str]) -> list[str]:
    """Settings of a small model that neither the file nor the overrides name."""
    if student.training.start_from is not None or student.model.is_fitted:
        return []
    named = set(flat_settings(dict(read_config_file(file).values))) if file is not None else set()
    named |= {each.partition("=")[0] for each in overrides}
    chosen = {f"model.{name}": value for name, value in student.model.student_settings.items()}
    chosen |= {f"search.{name}": value for name, value in STUDENT_SEARCH.items()}
    return [f"{name}={json.dumps(value)}" for name, value in chosen.items() if name not in named]


@dataclass(frozen=True)
class _Job:
    """What the teachers translate, and how."""

    teachers: tuple[Path, ...]
    overrides: tuple[str, ...]
    """Settings of the teachers: of their search, and their languages."""
    search: SearchConfig
    """All settings of the search."""
    targets: Targets
    keep_gold: bool
    languages: tuple[str | None, str | None]
    lines: list[Line]
    """Sources, and their references if there are any."""
    dev: Lines
    record: Mapping[str, Any]
    """What teacher.json holds."""

    def require_same(self, run: Path) -> None:
        """Refuse to continue what was begun with other teachers, texts or settings."""
        begun = read_teacher(run / TEACHER)
        if begun is None:
            raise UsageError(f"{run} exists already and has no {TEACHER}/{TEACHER}.json; choose another folder")
        then, now = flat_settings(begun), flat_settings(json.loads(json.dumps(self.record)))
        different = [name for name in {**then, **now} if then.get(name) != now.get(name)]
        if different:
            name = different[0]
            raise UsageError(
                f"{run} was begun with {name} {json.dumps(then.get(name))}, but now it is {json.dumps(now.get(name))}; "
                "give the same, or choose another folder"
            )


def _require_student(student: RunConfig) -> None:
    """Refuse settings that do not suit a student, before anything is read."""
    if student.purpose != "translator" or not student.reads_pairs or student.task.kind == "unsupervised":
        raise UsageError(
            f"model.kind={student.model.kind} with task.kind={student.task.kind} does not learn from translations; "
            "a student is a translator, such as model.kind=transformer"
        )
    for name in ("train", "dev", "monolingual"):
        if value := getattr(student.data, name):
            remedy = "leave it out" if name == "monolingual" else f"name the files with --{name}"
            raise UsageError(f"data.{name}={json.dumps(list(value))} cannot be combined with distillation; {remedy}")


def _plan(
    teachers: Sequence[Path],
    overrides: Sequence[str],
    student: RunConfig,
    files: Sequence[str],
    dev: Sequence[str],
    *,
    targets: Targets | None,
    keep_gold: bool,
    listener: Listener,
) -> _Job:
    """Read the texts, and find out how the teachers translate."""
    found = [find_model(folder) for folder in teachers]
    config = settings_for(found[0], overrides)
    require_translator(found[0], config)
    languages = student.data.source or config.data.source, student.data.target or config.data.target
    data = student.data.model_copy(
        update={"train": tuple(files), "dev": tuple(dev), "source": languages[0], "target": languages[1]}
    )
    if not files:
        raise UsageError("no text to translate: give --train SOURCE, or --train SOURCE --train TARGET")
    for name in (*files, *dev):
        if Path(name).is_dir():
            raise UsageError(f"{name} is a folder; name files of text")
    is_alone = len(files) == 1 and not holds_both_sides(Path(files[0]))
    reading: dict[str, Any] = {"encoding": data.encoding, "on_bad": data.on_bad_utf8}
    if is_alone:
        if not dev or targets == "closest" or keep_gold:
            what = "--dev pairs measure the student" if not dev else "--targets closest and --keep-gold need references"
            raise UsageError(f"{files[0]} holds sources alone: {what}; give {'--dev' if not dev else 'pairs'}")
        text = TextCorpus([Path(files[0])], language=languages[0], **reading)
        text.require_text()
        lines = [Line(line.number, 0, line.text, "") for line in text]
        held: Lines = open_corpus([Path(name) for name in dev], languages=languages, **reading)
    else:
        pairs = open_pairs(student.model_copy(update={"data": data}), listener=listener)
        lines, held = list(pairs.train), pairs.dev
    search = config.search
    has_several = search.beam > 1 or search.method == "sample"
    if targets == "closest" and not has_several:
        raise UsageError(
            f"--targets closest chooses among several translations, and {teachers[0]} has search.beam=1; add --beam 4"
        )
    targets = targets or ("closest" if has_several and not is_alone else "best")
    if targets == "closest" and search.nbest == 1:
        overrides = (*overrides, f"search.nbest={min(search.beam, MAX_CANDIDATES)}")
        search = settings_for(found[0], overrides).search
    record = {
        "teachers": [
            {"path": str(folder), "sha256": sha256_of(model / "manifest.json")}
            for folder, model in zip(teachers, found, strict=True)
        ],
        "targets": targets,
        "keep_gold": keep_gold,
        "text": {"train": _fingerprint(lines), "dev": _fingerprint(held)},
        "search": search.model_dump(mode="json"),
    }
    return _Job(tuple(teachers), tuple(overrides), search, targets, keep_gold, languages, lines, held, record)


def _fingerprint(lines: Iterable[Line]) -> str:
    """A hash of pairs."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line.source}\t{line.target}\n".encode())
    return digest.hexdigest()


def _write_pairs(run: Path, job: _Job, *, listener: Listener) -> None:
    """Translate all sources, and write what the student learns from and is measured on."""
    folder, sources = run / TEACHER, [line.source for line in job.lines]
    if (folder / "dev.target").is_file():  # the last that is written
        return
    phase(listener, "loading the teacher")
    translator = open_translator(job.teachers[0], job.overrides, companions=job.teachers[1:])

    def translate(first: int, some: Sequence[str], progress: Callable[[int], None]) -> list[str]:
        found = translator.run(some, Request(job.search), first=first, progress=progress)
        references = (line.target for line in job.lines[first : first + len(some)])
        return [_chosen(job, each, reference) for each, reference in zip(found, references, strict=True)]

    with locked(run):
        folder.mkdir(exist_ok=True)
        write_atomically(folder / f"{TEACHER}.json", json.dumps(job.record, indent=2) + "\n")
        written = translate_in_parts(sources, folder, translate, what="the teacher translates", listener=listener)
        if len(written) != len(sources):
            lines = f"{len(written):,} translations of {len(sources):,} lines"
            raise DataError(f"{folder} holds {lines}; remove {folder}, and start again")
        made = [line._replace(target=text) for line, text in zip(job.lines, written, strict=True)]
        learned, gold = _whole(made), _whole(job.lines) if job.keep_gold else []
        if not learned:
            shutil.rmtree(run, ignore_errors=True)
            raise DataError(f"the teacher has translated none of {len(sources):,} lines to its end; train it longer")
        if left_out := sum(not is_blank(source) for source in sources) - len(learned):
            why = "are empty or ended at the maximum output length"
            notice(listener, f"{left_out:,} of {len(sources):,} translations {why}; they are left out")
        write_pairs(folder, train=[*learned, *gold], dev=job.dev)
    which = "the closest to the reference" if job.targets == "closest" else "the best"
    kept = f", and {len(gold):,} genuine pairs" if gold else ""
    notice(listener, f"training pairs: {len(learned):,} translations ({which} of each line){kept}")


def _whole(lines: Iterable[Line]) -> list[Line]:
    """Pairs with two sides."""
    return [line for line in lines if not (is_blank(line.source) or is_blank(line.target))]


def _chosen(job: _Job, found: Sequence[Translation], reference: str) -> str:
    """The translation of a line that the student learns; blank if all of them ended at the maximum output length."""
    texts = [each.text for each in found if not each.hit_limit]
    if not texts:
        return ""
    if job.targets == "best" or is_blank(reference) or len(texts) == 1:
        return texts[0]
    return closest(texts, reference, language=job.languages[1])

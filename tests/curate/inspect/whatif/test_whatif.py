"""What-if: counts from scores and from what is measured are those of a run with these settings."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.documents.attributes import pack, unpack
from curate.documents.documents import documents
from curate.documents.limits import langs_of, marks
from curate.inspect.whatif.figures import Amount, Answer, Language, answer
from curate.inspect.whatif.rendering import by_effect, touched
from curate.inspect.whatif.rendering import page as page_of
from curate.inspect.whatif.rendering import text as text_of
from curate.inspect.whatif.scores import SIZES, _fill
from curate.steps.recipe import make_step
from llmcurate.base.errors import UsageError
from tests.llmcurate.base.pages.structure import check_structure

WORDS = "the house stands on a hill and the river below it runs clear and cold to be that".split()
MEASURED = [
    {"gopher_quality": {"min_words": 30}},
    {"document_length": {"min": 150, "unit": "chars"}},
]
STAGED = [
    {"gopher_quality": {"min_words": 30}},
    {"c4": {"min_sentences": 2}},
    "cut",
    {"document_length": {"min": 150, "unit": "chars"}},
]


def texts(count: int) -> list[dict[str, Any]]:
    """Documents of 0 to 120 words in lines with and without an end mark, a few of signs."""
    draw = random.Random(5)
    rows = []
    for i in range(count):
        lines = [
            " ".join(draw.choices(WORDS, k=draw.randint(2, 14))).capitalize() + draw.choice("...,")
            for _ in range(draw.randint(0, 12))
        ]
        text = "# " * 40 if i % 31 == 0 else "\n".join(lines)
        rows.append({"id": f"d{i}", "text": text, "lang": draw.choice(["en", "nl", None])})
    return rows


def test_numbers_with_gaps_are_read_as_they_are(tmp_path: Any) -> None:
    rows, path = [1, None, 2**20], tmp_path / "part-00000.parquet"
    table = pa.table({"s.n": pa.array(rows, pa.int64()), "s.f": pa.array(rows, pa.float32())})
    pq.write_table(table, path)
    numbers = {name: np.zeros(4) for name in ("s.n", "s.f", "absent")}
    _fill(numbers, path, slice(1, 4))
    gaps = [0, 1, np.nan, 2**20]
    for name, values in {"s.n": gaps, "s.f": gaps, "absent": [0, *[np.nan] * 3]}.items():
        np.testing.assert_array_equal(numbers[name], values)


@pytest.fixture(scope="module")
def bench(shared_bench: Any) -> Any:
    path = shared_bench.jsonl("in.jsonl", texts(400))
    shared_bench.run(MEASURED, path, out="measured")
    shared_bench.run(STAGED, path, out="staged")
    return shared_bench


def whatif(bench: Any, out: str, *sets: str) -> Answer:
    return answer(bench.folder / out, sets)


def run(bench: Any, steps: list[Any], *sets: str) -> tuple[int, int]:
    """(documents, bytes) kept by a run with these settings."""
    name = "run" + "".join(c if c.isalnum() else "_" for c in "".join(sets))
    bench.run(steps, bench.folder / "in.jsonl", out=name, sets=sets)
    rows = bench.rows(name)
    return len(rows), sum(len(r["text"].encode()) for r in rows)


@pytest.mark.parametrize("sets", [
    ("gopher_quality.min_words=60",),
    ("gopher_quality.min_words=5", "document_length.min=40"),
    ("document_length.max=300",),
], ids=["tighter", "looser", "switched_on"])  # fmt: skip
def test_where_every_step_only_measures_the_counts_are_those_of_a_run(
    bench: Any, sets: tuple[str, ...]
) -> None:
    answered = whatif(bench, "measured", *sets)
    assert answered.after.measured == 0 and not answered.notes
    kept = answered.after.estimate
    assert (kept.documents, kept.bytes) == run(bench, MEASURED, *sets)
    assert kept.documents == (
        answered.before.documents + answered.gained.documents - answered.lost.documents
    )


@pytest.mark.parametrize("least", [12, 60])
def test_after_edits_and_cuts_later_steps_measure_the_newly_kept_texts(
    bench: Any, least: int
) -> None:
    sets = (f"gopher_quality.min_words={least}",)
    after = whatif(bench, "staged", *sets).after
    assert (after.estimate.documents, after.estimate.bytes) == run(bench, STAGED, *sets)
    assert after.exact and (after.measured > 0) == (least < 30)
    assert after.unmeasured.documents == 0


def test_a_setting_that_no_score_decides_is_tried_on_the_texts(bench: Any) -> None:
    sets = ("c4.min_words_per_line=6",)
    after = whatif(bench, "staged", *sets).after
    assert after.exact and after.measured
    assert (after.estimate.documents, after.estimate.bytes) == run(bench, STAGED, *sets)


def test_curves_say_what_a_run_with_that_limit_keeps(bench: Any) -> None:
    answered = whatif(bench, "measured", "document_length.max=600")
    curves = {r.name: r.curve for r in answered.rules.values() if r.curve}
    assert {"gopher_quality.few_words", "document_length.too_long"} <= curves.keys()
    for name, setting in (
        ("gopher_quality.few_words", "gopher_quality.min_words"),
        ("gopher_quality.hash_ratio", "gopher_quality.max_symbol_ratio"),
        ("document_length.too_long", "document_length.max"),
    ):
        points = [p for p in curves[name] if setting != "document_length.max" or p.threshold >= 150]
        for point in points[:: max(1, len(points) // 4)]:
            value = point.threshold if "ratio" in setting else int(point.threshold)
            other = whatif(bench, "measured", "document_length.max=600", f"{setting}={value}")
            if "ratio" not in setting:  # two rules share that setting
                assert point.kept == other.after.estimate, (name, point.threshold)
            else:
                assert point.kept.documents >= other.after.estimate.documents


def test_the_effect_of_a_rule_alone_is_what_a_run_without_it_keeps_in_addition(bench: Any) -> None:
    rules = whatif(bench, "measured").rules
    kept = whatif(bench, "measured").before
    without = whatif(bench, "measured", "gopher_quality.min_words=0").after.estimate
    alone = rules["gopher_quality.few_words"].alone
    assert alone.documents == without.documents - kept.documents
    assert alone.bytes == without.bytes - kept.bytes


def test_languages_are_those_of_the_stored_reasons(bench: Any) -> None:
    answered = whatif(bench, "measured")
    langs = [row["lang"] or "(none)" for row in bench.rows("measured")]
    for name, of in answered.languages.items():
        assert of.before.documents == of.after.documents == langs.count(name)


@pytest.mark.lab
@pytest.mark.parametrize(("name", "settings", "other"), [
    ("gopher_quality", {"variant": "datatrove"}, {"min_words": 9, "max_word_length": 4}),
    ("gopher_quality", {"variant": "dclm"}, {"min_stop_words": 4, "max_symbol_ratio": 0.01}),
    ("gopher_repetition", {}, {"max_top_n_gram_chars": {2: 0.01}, "max_duplicate_lines": 0.1}),
    ("fineweb_quality", {"variant": "datatrove"}, {"min_end_marks": 0.9, "max_newlines": 0.05}),
    ("fineweb_quality", {"variant": "paper"}, {"min_end_marks": 1, "max_short_lines": 0.2}),
    ("document_length", {}, {"min": 10, "max": 60}),
    ("c4", {}, {"min_sentences": 6}),
    ("wangchanberta", {}, {"min_thai_chars": 0}),
], ids=lambda v: v if isinstance(v, str) else str(list(v.values())[:1] if v else ""))  # fmt: skip
def test_columns_of_one_setting_decide_for_another_as_the_step_does(
    name: str, settings: dict[str, Any], other: dict[str, Any]
) -> None:
    columns = {k: [r[k] for r in texts(120)] for k in ("id", "text")}
    docs = documents(columns).within(name)
    measured = make_step(name, settings).apply(docs)
    step = make_step(name, settings | other)
    decided = {d.rule: d.rows.tolist() for d in step.apply(docs).drops}

    def column(of: str) -> np.ndarray:
        return measured.table[f"{name}.{of}"].to_numpy()

    decide = marks(step.limits(), column, langs_of(docs))
    for rule, mask in decide.items():
        assert np.flatnonzero(mask).tolist() == decided.get(rule, []), rule
    assert any(rule in decided for rule in decide) or name == "wangchanberta"


def test_settings_that_scores_cannot_decide_are_named_and_others_counted(bench: Any) -> None:
    answered = whatif(bench, "staged", "c4.min_words_per_line=2", "document_length.min=400")
    assert list(answered.question.undecidable) == ["c4.min_words_per_line"]
    assert answered.after.exact and answered.after.measured
    assert answered.after.estimate.documents < answered.before.documents


@pytest.mark.parametrize(("setting", "message"), [
    ("gopher.min_words=3", "no section"),
    ("gopher_quality.min_word=3", "unknown key"),
    ("gopher_quality.min_words=many", "min_words is 'many': give a whole number"),
    ("gopher_quality.min_words=30", "the run had this value"),
    ("read.batch_rows=3", "no stored scores"),
])  # fmt: skip
def test_a_wrong_setting_is_refused_in_one_line(bench: Any, setting: str, message: str) -> None:
    done = bench.command("whatif", "measured", "--set", setting)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_folders_that_are_no_run_and_damaged_ones_are_refused(bench: Any) -> None:
    with pytest.raises(UsageError, match="no finished run"):
        whatif(bench, "nowhere")
    bench.run(MEASURED, bench.folder / "in.jsonl", out="damaged")
    part = next((bench.folder / "damaged" / "rejected").glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:900])
    with pytest.raises(UsageError, match="cannot be read"):
        whatif(bench, "damaged")


def test_reasons_that_do_not_fit_the_scores_are_not_tried_again(bench: Any) -> None:
    bench.run(MEASURED, bench.folder / "in.jsonl", out="other")
    part = next((bench.folder / "other" / "corpus").glob("part-*.parquet"))
    table = unpack(pq.read_table(part))
    at = table.column_names.index("gopher_quality.words")
    words = np.array(table["gopher_quality.words"].to_pylist(), np.int32)
    words[0] = 3
    pq.write_table(pack(table.set_column(at, "gopher_quality.words", [words])), part)
    with pytest.raises(UsageError, match="disagree"):
        whatif(bench, "other", "gopher_quality.min_words=40")
    assert whatif(bench, "other", "document_length.min=300").after.estimate.documents > 0


def test_lengths_of_texts_are_read_once_and_again_for_another_corpus(bench: Any) -> None:
    stored = bench.folder / "measured" / SIZES
    before = whatif(bench, "measured").before
    modified = stored.stat().st_mtime_ns
    assert whatif(bench, "measured").before == before and stored.stat().st_mtime_ns == modified
    stored.write_bytes(b"damaged")
    assert whatif(bench, "measured").before == before


def test_the_command_prints_a_table_json_and_a_page_that_runs_nothing(bench: Any) -> None:
    page = bench.folder / "page.html"
    sets = ("--set", "gopher_quality.min_words=60")
    done = bench.command("whatif", "measured", *sets, "-o", page)
    assert done.returncode == 0 and "gopher_quality.min_words 30 -> 60" in done.stdout
    text = page.read_text()
    assert "<script" not in text and "default-src 'none'" in text and text.count("<svg") > 5
    data = json.loads(bench.command("whatif", "measured", *sets, "--json").stdout)
    assert data["after"]["low"]["documents"] < data["before"]["documents"]
    assert data["rules"]["gopher_quality.few_words"]["curve"]
    assert bench.command("whatif", "measured", "-o", bench.folder).returncode == 2


def test_a_page_shows_names_as_text(bench: Any) -> None:
    answered = whatif(bench, "measured", "document_length.max=600")
    answered.question.changes["<script>alert(1)</script>"] = ("<b>", "</style>")
    page = page_of(answered)
    assert "&lt;script&gt;" in page and "<script>" not in page and page.count("</style>") == 1
    check_structure(page)


def test_rules_are_sorted_by_effect_and_idle_rules_left_out(bench: Any) -> None:
    answered = whatif(bench, "measured", "gopher_quality.max_words=110")
    names = [rule.name for rule in by_effect(answered.rules.values())]
    assert names[0] == "gopher_quality.many_words"
    alone = {rule.name: rule.alone.documents for rule in answered.rules.values()}
    effects = [alone[name] for name in names[1:]]
    assert effects == sorted(effects, reverse=True) and effects[0] > 0
    idle = [r.name for r in answered.rules.values() if r.rule is not None and not r.marks]
    printed = text_of(answered)
    assert idle and f"left out: {len(idle)} rules that no document fails" in printed
    assert not [name for name in idle if name in printed]
    nothing = Amount(0, 0, 0)
    answered.languages["tlh"] = Language(nothing, nothing, nothing)
    assert "tlh" not in touched(answered) and "nl" in touched(answered)
    assert "tlh" not in text_of(answered) and ">tlh<" not in page_of(answered)


def test_whatif_applies_language_profiles_to_new_thresholds(shared_bench: Any) -> None:
    """Words of 15 characters pass in German only, until a limit is given for all languages."""
    word = {"en": "interdependence ", "de": "Verantwortungen "}
    rows = [
        {"id": f"{lang}{i}", "lang": lang, "text": word[lang] * (60 + i) + "of und the der to"}
        for lang in word
        for i in range(8)
    ]
    path = shared_bench.jsonl("langs.jsonl", rows)
    steps = [{"gopher_quality": {"words": "estimate"}}]
    shared_bench.run(steps, path, out="langs")
    assert {r["lang"] for r in shared_bench.rows("langs")} == {"de"}
    assert whatif(shared_bench, "langs").after.estimate.documents == 8
    looser = whatif(shared_bench, "langs", "gopher_quality.max_word_length=20")
    assert looser.question.changes == {"gopher_quality.max_word_length": ("by profile", 20)}
    assert looser.after.estimate.documents == 16
    assert (
        whatif(shared_bench, "langs", "gopher_quality.max_word_length=12").after.estimate.documents
        == 0
    )
    assert "by the profile of each" in text_of(
        whatif(shared_bench, "langs", "gopher_quality.min_words=1")
    )

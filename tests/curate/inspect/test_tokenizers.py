"""`llmcurate tokenizer eval`, `diff` and `study`: figures, pages, colours, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.cli.app import invoke
from curate.inspect.tokenizers import (
    FIGURES,
    TRAINED_ON,
    TokenizerEvaluation,
    names,
)
from curate.run.driver import carry_out
from curate.run.records import Options
from curate.steps.recipe import compose
from tests.llmcurate.base.pages.structure import check_structure
from tokenize_kit.learn.training import train_tokenizer

ROWS = [
    {"id": "1", "text": "the cat <b>sat</b> on the mat\nthen", "lang": "en", "source": "a"},
    {"id": "2", "text": "กินข้าวที่บ้าน", "lang": "th", "source": "b"},
    {"id": "3", "text": "the mat", "lang": "en", "source": "b"},
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: Any) -> Path:
    """A folder with texts.jsonl, one/ and two/."""
    folder: Path = tmp_path_factory.mktemp("judged")
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    (folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    texts = [row["text"] for row in ROWS] * 5
    train_tokenizer(texts, folder / "one", vocab=280)
    train_tokenizer(texts, folder / "two", vocab=290)
    return folder


def _eval(capsys: Any, folder: Path, *arguments: Any) -> tuple[int, str, str]:
    on = ("--on", folder / "texts.jsonl")
    code = invoke(["tokenizer", "eval", *map(str, (*arguments, *on))])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_figures_languages_and_cuts_are_printed(judged: Path, capsys: Any) -> None:
    code, out, _ = _eval(capsys, judged, judged / "one", judged / "two", "--show", 1)
    assert code == 0
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert lines["vocabulary"].split() == ["vocabulary", "280", "290"]
    assert lines["bytes per token"].endswith("*")  # the larger vocabulary
    assert lines["th"].split()[1] == "1"
    assert "text 1" in out and "\x1b[" not in out
    assert "the|" in out or "|the" in out or "| the" in out


def test_the_page_holds_what_the_json_says(judged: Path, capsys: Any) -> None:
    out = judged / "out"
    both = (judged / "one", judged / "two")
    code, printed, _ = _eval(capsys, judged, *both, "--show", 2, "-o", out, "--json")
    assert code == 0
    evaluation = json.loads(printed.splitlines()[-1])
    assert json.loads((out / "evaluation.json").read_text(encoding="utf-8")) == evaluation
    assert evaluation["read"] == evaluation["kept"] == 3
    assert [figures["name"] for figures in evaluation["tokenizers"]] == ["one", "two"]
    assert [row["label"] for row in evaluation["tokenizers"][0]["source"]] == ["b", "a"]
    page = (out / "evaluation.html").read_text(encoding="utf-8")
    check_structure(page)
    for figures in evaluation["tokenizers"]:
        assert f"{figures['bytes_a_token']:.3f}" in page
    assert "<b>sat" not in page and "sat" in page  # text from documents is text
    assert page.count("class=tokens") == 4
    assert "Premium per text" in page


def test_the_first_table_has_six_figures_and_a_column_per_tokenizer(
    judged: Path, capsys: Any
) -> None:
    out = judged / "front"
    assert _eval(capsys, judged, judged / "one", judged / "two", "-o", out)[0] == 0
    page = (out / "evaluation.html").read_text(encoding="utf-8")
    front, _, folded = page[page.index('id="figures"') :].partition("<details")
    assert front.count("<tr><td>") == 1 + 6 and "texts not restored by decoding" in front
    assert "encoded by" in folded and page.count(">one</bdi></th>") > 4
    assert 'fill="var(--s0)"' in page and 'fill="var(--s1)"' in page


def test_a_tokenizer_judged_on_what_it_was_trained_on_is_warned_of(bench: Any, capsys: Any) -> None:
    texts = bench.jsonl("texts.jsonl", [{"text": row["text"] * 9} for row in ROWS])
    other = bench.jsonl("other.jsonl", [{"text": "the cat sat on the mat"}])
    chosen = [("tokenizer", {"vocab": 280})]
    carry_out(compose("tokens", chosen, ()), [str(texts)], bench.folder / "out", Options(1, True))
    for on, warned in ((texts, True), (other, False)):
        arguments = ["tokenizer", "eval", bench.folder / "out", "--on", on, "-o", bench.folder]
        assert invoke([*map(str, arguments)]) == 0
        page = (bench.folder / "evaluation.html").read_text(encoding="utf-8")
        assert (TRAINED_ON in capsys.readouterr().out, TRAINED_ON in page) == (warned, warned)


def test_the_chart_shows_bytes_a_token_of_all_texts_and_of_languages() -> None:
    one = {"bytes_a_token": 3.0, "lang": [{"label": "en", "bytes_a_token": 4.0}]}
    two = {"bytes_a_token": 2.0, "lang": [*one["lang"], {"label": "th", "bytes_a_token": None}]}
    assert TokenizerEvaluation({"tokenizers": [one]}).bars() == [("all texts", [3.0])]
    assert TokenizerEvaluation({"tokenizers": [two, two]}).bars()[1:] == [("en", [4.0, 4.0])]


def test_lengths_are_set_against_a_baseline(judged: Path, capsys: Any) -> None:
    out = judged / "against"
    arguments = (judged / "one", "--baseline", judged / "two", "-o", out)
    code, printed, _ = _eval(capsys, judged, *arguments)
    assert code == 0
    lines = {line.split("  ")[0]: line.split() for line in printed.splitlines()}
    assert lines["tokens over the baseline's (NSL)"][-2:][1].startswith("1.000")
    assert "baseline: two" in printed and "tokens over the baseline's by language" in printed
    first, baseline = json.loads((out / "evaluation.json").read_bytes())["tokenizers"]
    assert first["nsl"] == first["tokens"] / baseline["tokens"] > 1
    page = (out / "evaluation.html").read_text(encoding="utf-8")
    assert "Baseline: " in page and "Relative to the baseline" in page


def test_a_pattern_without_ranks_is_refused(judged: Path, capsys: Any) -> None:
    code, _, err = _eval(capsys, judged, judged / "one", "--pattern", "gpt2")
    assert code == 2 and ".tiktoken" in err


def test_a_page_without_languages_has_no_chapter_on_them(tmp_path: Path, judged: Path) -> None:
    (tmp_path / "plain.jsonl").write_text('{"text": "the cat"}\n', encoding="utf-8")
    arguments = [
        "tokenizer",
        "eval",
        judged / "one",
        "--on",
        tmp_path / "plain.jsonl",
        "-o",
        tmp_path,
    ]
    assert invoke([str(g) for g in arguments]) == 0
    page = (tmp_path / "evaluation.html").read_text(encoding="utf-8")
    check_structure(page)
    assert 'id="languages"' not in page and 'id="texts"' not in page and 'id="lost"' not in page


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        pytest.param('{"text": ""}', 2, "no document with text", id="empty-text"),
        pytest.param("not json", 1, "in.jsonl: not JSON", id="no-json"),
    ],
)
def test_without_text_a_tokenizer_cannot_be_evaluated(
    tmp_path: Path, judged: Path, capsys: Any, line: str, code: int, message: str
) -> None:
    (tmp_path / "in.jsonl").write_text(line + "\n", encoding="utf-8")
    arguments = ["tokenizer", "eval", str(judged / "one"), "--on", str(tmp_path / "in.jsonl")]
    assert invoke(arguments) == code
    assert message in capsys.readouterr().err


def test_an_invalid_tokenizer_is_refused_by_name(judged: Path, capsys: Any) -> None:
    (judged / "bad.model").write_bytes(b"\x0a\x80")
    for name in ("missing", "bad.model", "texts.jsonl"):
        code, _, err = _eval(capsys, judged, judged / name)
        assert code == 2
        assert name in err and len(err.strip().splitlines()) == 1


def test_names_are_short_where_they_differ() -> None:
    paths = [Path("a/tok/tokenizer.json"), Path("b/spm.model"), Path("c/tok32")]
    assert names(paths) == ["tok", "spm", "tok32"]
    assert names([Path("a/tok"), Path("b/tok")]) == ["a/tok", "b/tok"]


@pytest.mark.lab
def test_a_study_recommends_a_size_and_draws_it(tmp_path: Path, capsys: Any) -> None:
    rows = [{"text": f"the cat{k} sat on mat{k * 7} and {k * 31} went"} for k in range(120)]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    arguments = ["tokenizer", "study", str(path), "--vocab", "265,270", "-o", str(tmp_path / "out")]
    assert invoke([*arguments, "--json"]) == 0
    study = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["vocab"] for row in study["rows"]] == [265, 270]
    assert study["recommended"] == 270
    assert study["read"] == 120
    page = (tmp_path / "out" / "study.html").read_text(encoding="utf-8")
    check_structure(page)
    assert page.count("<svg") == page.count(">recommended</text>") == 4
    assert "could not be drawn" not in page
    assert invoke([*arguments, "--worth", "1", "-q"]) == 0
    quiet = capsys.readouterr()
    assert "recommended: 265, the largest size" in quiet.out
    assert {line.split()[0] for line in quiet.err.splitlines()} <= {"wrote"}


@pytest.mark.parametrize("vocab", ["many", "12", "300,"], ids=["word", "too-small", "comma"])
def test_invalid_vocabulary_sizes_are_refused(judged: Path, capsys: Any, vocab: str) -> None:
    code = invoke(["tokenizer", "study", str(judged / "texts.jsonl"), "--vocab", vocab])
    assert code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def best_of(*tokenizers: dict[str, Any]) -> dict[str, list[int]]:
    rows = TokenizerEvaluation({"tokenizers": tokenizers}).rows()
    return {title: best for title, _, best in rows}


def test_equal_figures_have_no_best_tokenizer() -> None:
    figures = dict.fromkeys((key for key, *_ in FIGURES), 0.5)
    best = best_of(figures, figures | {"bytes_a_token": 0.5000001})
    assert best["bytes per token"] == []
    other = figures | {"bytes_a_token": 0.7, "fertility": None, "encode_mb_per_cpu_second": 9.0}
    best = best_of(figures, other)
    assert best["bytes per token"] == [1]
    assert best["tokens per word (fertility)"] == []
    assert best["encoding, MB/s of CPU time"] == []  # no two runs give the same


def test_words_of_a_separator_or_a_dictionary_costs_and_scripts_are_shown(
    judged: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "words.txt").write_text("กิน\nข้าว\nที่\nบ้าน\n", encoding="utf-8")
    options = ("--price", 3, "--context", 4096, "--pivot", "th", "-o", tmp_path)
    _, plain, _ = _eval(capsys, judged, judged / "one", judged / "two")
    dictionary = ("--dictionary", tmp_path / "words.txt")
    code, printed, _ = _eval(capsys, judged, judged / "one", judged / "two", *dictionary, *options)
    assert code == 0
    assert "price per million characters" in printed and "over those of th" in printed
    assert "tokens of the vocabulary by script" in printed and "price" not in plain
    (one, _) = json.loads((tmp_path / "evaluation.json").read_bytes())["tokenizers"]
    thai = next(row for row in one["lang"] if row["label"] == "th")
    assert thai["words"] == 4 and thai["word_boundaries"] == 3  # กิน ข้าว ที่ บ้าน
    page = (tmp_path / "evaluation.html").read_text(encoding="utf-8")
    check_structure(page)
    assert "could not be drawn" not in page and page.count("<svg") == 5  # price, context

    names = ("tokens", "words", "kept_boundaries", "boundaries_within", "bytes")
    words = ["กิน", "ข้าว", "ที่", "บ้าน"]
    marked = tmp_path / "marked.jsonl"
    for row, option in (
        ({"text": "|".join(words)}, ("--separator", "|")),
        ({"text": "".join(words), "gold": words}, ("--words", "gold")),
        ({"text": "".join(words), "gold": " ".join(words)}, ("--words", "gold")),
    ):
        marked.write_text(json.dumps(row), encoding="utf-8")
        arguments = ["tokenizer", "eval", judged / "one", "--on", marked, *option, "--json"]
        assert invoke([str(argument) for argument in arguments]) == 0
        (gold,) = json.loads(capsys.readouterr().out.splitlines()[-1])["tokenizers"]
        assert [gold[name] for name in names] == [thai[name] for name in names]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pivot", "xx"),
        ("--dictionary", "none.txt"),
        ("--dictionary", "none.txt", "--separator", "|"),
        ("--context", "0"),
        ("--words", "none"),
        ("--words", "lang"),
    ],
    ids=["pivot", "no-dictionary", "two-ways", "context", "no-words", "other-words"],
)
def test_measures_that_cannot_be_taken_are_refused(
    judged: Path, capsys: Any, arguments: tuple[str, ...]
) -> None:
    code, _, err = _eval(capsys, judged, judged / "one", *arguments)
    assert code == 2 and len(err.strip().splitlines()) == 1

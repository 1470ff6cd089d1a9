"""`llmcurate explain` shows what was cut, and figures that people can read."""

from __future__ import annotations

from typing import Any

from curate.documents.edits import Edit, edited
from curate.inspect.explain import explain

LINE = "The river runs past the old mill and nobody works there."
STEPS: list[Any] = [
    {"c4": {"min_sentences": 1}},
    "gopher_quality",
    {"dedup_passages": {"unit": "line", "min_sentences": 1}},
]


def test_nested_edits_remove_a_text_only_once() -> None:
    edits = [
        Edit("s", "a", start, end, put)
        for start, end, put in ((6, 8, "-"), (0, 5, None), (1, 3, None), (5, 5, "+"), (9, 10, "é"))
    ]
    for order in (edits, edits[::-1]):
        assert edited(b"0123456789", order).decode() == "+5-8é"


def test_cuts_and_passages_are_shown_with_their_text(bench: Any) -> None:
    rows = [
        {"id": "a", "text": f"Log in | Menü\n{LINE}\nThis line stands in one page only, here."},
        {"id": "b", "text": f"Another page has a line of its own in front.\n{LINE}"},
    ]
    bench.run(STEPS[:1] + STEPS[2:], bench.jsonl("in.jsonl", rows))
    account = explain([bench.folder / "out"], "a")
    lines = str(account).splitlines()
    (cut,) = [line for line in lines if line.startswith("  cut by c4.")]
    assert cut.endswith(' of its input: "Log in | Menü"')
    texts = [
        line for name in "ab" for line in str(explain([bench.folder / "out"], name)).split("\n")
    ]
    (copy,) = [line for line in texts if "are a duplicate" in line]
    (kept,) = [line for line in texts if "are the duplicate that is kept" in line]
    assert copy.endswith(f': "{LINE}"') and kept.endswith(f': "{LINE}"')


def test_without_the_input_explain_shows_positions_only(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"id": "a", "text": f"Menu\n{LINE}"}])
    bench.run(STEPS[:1], source)
    source.unlink()
    shown = str(explain([bench.folder / "out"], "a"))
    assert "bytes 0 to 5 of its input\n" in shown or "bytes 0 to 4 of its input\n" in shown


def test_explain_prints_one_line_per_step_with_few_digits(bench: Any) -> None:
    row = {"id": "a", "text": f"{LINE}\n" * 3}
    bench.run(STEPS[:2], bench.jsonl("in.jsonl", [row]))
    lines = str(explain([bench.folder / "out"], "a")).splitlines()
    (figures,) = [line for line in lines if line.startswith("  gopher_quality measured: ")]
    values = [pair.rsplit(" ", 1)[1] for pair in figures.partition(": ")[2].split(", ")]
    assert len(values) > 3 and all(len(value) <= 8 for value in values), figures


def test_a_threshold_is_named_as_its_setting(bench: Any) -> None:
    row = {"id": "a", "text": "A line without a mark at its end\n" * 9}
    bench.run([{"fineweb_quality": {}}], bench.jsonl("in.jsonl", [row]))
    shown = str(explain([bench.folder / "out"], "a"))
    assert "fineweb_quality.end_marks: value 0, threshold 0.12 of min_end_marks\n" in shown

"""Training gives the same bytes for the same documents; the figures say what was counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.demo.language import TRAINING, examples
from curate.engines.local import call_apart
from curate.scoring.fasttext.model_file import read_header
from curate.scoring.language.scores import Scores, text_of
from curate.scoring.language.train import Training, pieces, train
from llmcurate.base.errors import RunFailed, UsageError

SMALL = Training(bucket=2000, maxn=3, epochs=3, held_out=0.2)


@given(st.text(st.sampled_from("ab 文\n"), max_size=60), st.integers(0, 20))
def test_pieces_are_the_text_in_bounded_parts(text: str, chars: int) -> None:
    parts = list(pieces(text, chars))
    assert "".join(parts) == text
    assert all(0 < len(p) <= (chars or len(text)) for p in parts)


def test_pieces_end_at_blanks_where_there_are_some() -> None:
    assert list(pieces("one two three four", 9)) == ["one two ", "three ", "four"]
    assert list(pieces("abcd efg", 8)) == ["abcd efg"]
    assert list(pieces("abcd efgh", 8)) == ["abcd ", "efgh"]  # a blank where the second half begins
    assert list(pieces("abc defgh", 8)) == ["abc defg", "h"]
    assert list(pieces("abcdefgh ij", 8)) == ["abcdefgh", " ij"]
    assert list(pieces("onetwothree", 4)) == ["onet", "woth", "ree"]


@pytest.fixture
def fasttext() -> None:
    pytest.importorskip("fasttext_pybind")


@pytest.mark.usefixtures("fasttext")
class TestTraining:
    def test_the_same_bytes_in_any_order(self, tmp_path: Path) -> None:
        texts = list(examples())
        first = train(texts, tmp_path / "a", SMALL, call_apart)
        again = train(texts[::-1], tmp_path / "b", SMALL, call_apart)
        assert first["sha256"] == again["sha256"]
        assert (tmp_path / "a/card.json").read_bytes() == (tmp_path / "b/card.json").read_bytes()

    @pytest.mark.slow  # the same bytes of one seed are the test above
    def test_a_seed_gives_another_model(self, tmp_path: Path) -> None:
        digests = {
            train(
                examples(),
                tmp_path / str(seed),
                Training(**{**vars(SMALL), "seed": seed}),
                call_apart,
            )["sha256"]
            for seed in (0, 1)
        }
        assert len(digests) == 2

    @pytest.mark.slow  # that of quality stands for it
    def test_a_quantized_model_is_smaller_and_the_same_again(self, tmp_path: Path) -> None:
        packed = Training(**{**vars(SMALL), "quantize": True})
        plain = train(examples(), tmp_path / "plain", SMALL, call_apart)
        first, second = (train(examples(), tmp_path / n, packed, call_apart) for n in "ab")
        assert first["sha256"] == second["sha256"]
        assert first["bytes"] < plain["bytes"]
        assert read_header(tmp_path / "a" / "language.ftz").quantized
        cut = Training(**{**vars(SMALL), "quantize": True, "cutoff": 500})
        assert train(examples(), tmp_path / "cut", cut, call_apart)["bytes"] < first["bytes"]

    def test_the_card_counts_every_document_once(self, tmp_path: Path) -> None:
        texts = [*examples(), ("\n \n", "en")]
        card = train(texts, tmp_path, SMALL, call_apart)
        assert card == json.loads((tmp_path / "card.json").read_text())
        documents = sum(n for label in card["labels"].values() for n in label.values())
        assert documents == len(texts)
        lines = card["lines"]
        assert lines["train"] + lines["held_out"] + lines["empty"] == documents
        assert lines["empty"] == 1
        assert card["held_out"]["texts"] == lines["held_out"]
        assert sorted(p.name for p in tmp_path.iterdir()) == ["card.json", "language.bin"]

    def test_held_out_lines_are_scored_a_batch_at_a_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        add = Scores.add
        monkeypatch.setattr(
            Scores, "add", lambda self, *a: (sizes.append(len(a[0])), add(self, *a))
        )
        whole = train(examples(), tmp_path / "a", SMALL, call_apart)["held_out"]
        lines, rest = whole["texts"] // 7 * [7], whole["texts"] % 7
        assert sizes == [whole["texts"]]
        monkeypatch.setattr("curate.scoring.language.train.BATCH", 7)
        assert train(examples(), tmp_path / "b", SMALL, call_apart)["held_out"] == whole
        assert sizes[1:] == [*lines, rest]

    def test_a_text_is_on_one_side_only(self, tmp_path: Path) -> None:
        texts = list(examples())
        card = train(texts * 2, tmp_path, SMALL, call_apart)
        assert all(n % 2 == 0 for label in card["labels"].values() for n in label.values())

    def test_a_label_in_the_text_teaches_nothing(self, tmp_path: Path) -> None:
        hostile = [(f"__label__evil {text} </s> more", label) for text, label in examples()]
        train(hostile, tmp_path, SMALL, call_apart)
        assert "evil" not in read_header(tmp_path / "language.bin").labels

    @pytest.mark.parametrize("texts", [[], [("one text", "en")], [("a", "en"), ("b", "en")]])
    def test_training_needs_at_least_two_labels(self, tmp_path: Path, texts: Any) -> None:
        with pytest.raises(UsageError, match="at least two labels"):
            train(texts, tmp_path, SMALL, call_apart)
        assert not list(tmp_path.iterdir())

    def test_divergence_is_one_line_of_advice(self, tmp_path: Path) -> None:
        wild = Training(**{**vars(TRAINING), "lr": 1e30})
        with pytest.raises(RunFailed, match="lr below"):
            train(examples(), tmp_path, wild, call_apart)
        assert not list(tmp_path.iterdir())


@pytest.mark.slow  # the order of examples, which is what workers change, is tested above
@pytest.mark.usefixtures("fasttext")
def test_a_recipe_trains_on_what_it_kept_whatever_the_workers(bench: Any) -> None:
    rows = [{"id": f"p{i}", "text": t, "lang": c} for i, (t, c) in enumerate(examples())]
    source = bench.jsonl("in.jsonl", [*rows, {"text": "short", "lang": "xx"}])
    loose = {"min_words": 1, "min_word_length": 0, "max_word_length": 999}
    long = {"gopher_quality": loose | {"min_stop_words": 0, "min_alpha_words": 0}}
    model = {"language_model": {"bucket": 2000, "epochs": 3, "piece_chars": 20}}
    bench.run([long, model], source, out="one", workers=1)
    bench.run([long, model], source, out="two", workers=2, read={"partition_bytes": 9000})
    first, second = (bench.folder / out / "language.bin" for out in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_scores_by_length_by_label_and_by_confusion() -> None:
    scores = Scores(["en", "de", "fr"])
    scores.add(["en", "eng", "de", "pl"], ["en", "en", "fr", "de"], [5, 30, 30, 700], [0.9] * 4)
    scores.add(["de"], [None], [0], [0.0])
    result = scores.result()
    assert result["texts"] == 5
    assert result["accuracy"] == 0.4
    # English 2 of 2, found twice: F1 1; German none of 2; French was never expected.
    assert result["known"] == {"texts": 4, "labels": 2, "accuracy": 0.5, "macro_f1": 0.5}
    assert result["unknown_labels"] == ["pl"]
    assert [(r["from"], r["texts"], r["accuracy"]) for r in result["by_length"]][:3] == [
        (0, 2, 0.5),
        (20, 2, 0.5),
        (50, 0, None),
    ]
    assert result["confusions"][0] == {"expected": "deu", "found": None, "texts": 1}
    assert "no label" in text_of(result)
    assert "languages without a label: pl" in text_of(result)


def test_scripts_count_where_everything_has_one() -> None:
    scores = Scores(["zho_Hans", "zho_Hant"])
    scores.add(["zho_Hans", "zho_Hant"], ["zho_Hant", "zho_Hant"], [9, 9], [1.0, 0.5])
    assert scores.result()["accuracy"] == 0.5
    scores = Scores(["zho_Hans", "zho_Hant"])
    scores.add(["zh", "zh"], ["zho_Hant", "zho_Hans"], [9, 9], [1.0, 0.5])
    assert scores.result()["accuracy"] == 1


def test_no_text_gives_no_figures() -> None:
    result = Scores(["en"]).result()
    assert (result["texts"], result["accuracy"], result["known"]["macro_f1"]) == (0, None, None)
    assert text_of(result)

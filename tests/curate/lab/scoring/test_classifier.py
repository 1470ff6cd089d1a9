"""Scores of models that classify texts, and the integer score that FineWeb-Edu keeps from 3 on."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.lab.scoring.classifier import Classifier
from curate.lab.scoring.sequence_model import Head, SequenceModel
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench
from tests.curate.onnx_models import onnx_model, write_model

WORDS = ["[UNK]", "low", "half", "good", "best"]
VALUES = np.array([[0.0], [-1.0], [2.5], [2.6], [9.0]], np.float32)
TEXTS = ["low", "half", "good", "best", "low best", "", None]
PADDED = 16  # texts per batch


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    """A model whose score is the mean of its words' values."""
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[onnx]'")
    write_model(tmp_path / "edu", onnx_model(VALUES, mean=True), WORDS)
    return tmp_path / "edu"


def configure(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def numbered(bench: Bench, texts: Sequence[str | None], name: str = "in.jsonl") -> Path:
    return bench.jsonl(name, [{"id": str(i), "text": text} for i, text in enumerate(texts)])


def all_rows(bench: Bench, out: str = "out") -> dict[str, dict[str, Any]]:
    return {r["id"]: r for kind in ("corpus", "rejected") for r in bench.rows(out, kind)}


def test_the_integer_score_is_rounded_as_python_rounds_and_stays_within_0_and_5(
    onnx: Path, bench: Bench
) -> None:
    bench.run([{"classifier": {"model": str(onnx), "threshold": 3}}], numbered(bench, TEXTS))
    rows = all_rows(bench)
    score = [rows[i]["classifier.score"] for i in "01234"]
    assert score == pytest.approx([-1, 2.5, 2.6, 9, 4])
    whole = [round(max(0, min(s, 5))) for s in score]  # run_edu_bert.py
    assert [rows[i]["classifier.int_score"] for i in "01234"] == whole
    assert bench.ids() == ["2", "3", "4"]
    gone = {i: r["rule"] for i, r in rows.items() if r.get("rule")}
    assert gone.pop("0") == gone.pop("1") == "low_int_score"
    assert set(gone.values()) <= {"no_text"}


def test_only_the_first_tokens_are_seen_and_without_a_limit_nothing_goes(
    onnx: Path, bench: Bench
) -> None:
    texts = ["best " * 8 + "low " * 80, " " * 9000 + "best", "   "]
    bench.run([{"classifier": {"model": str(onnx), "max_tokens": 8}}], numbered(bench, texts))
    rows = all_rows(bench)
    assert [rows[i]["classifier.score"] for i in "012"] == [pytest.approx(9)] * 2 + [None]
    assert len(bench.ids()) == 3


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_same_bytes_whatever_the_worker_count(
    onnx: Path, bench: Bench, batch_size: int
) -> None:
    rows = [" ".join(WORDS[1 + (i * k) % 4] for k in range(1 + i % 5)) for i in range(40)]
    files = [numbered(bench, rows[n::3], f"{n}.jsonl") for n in range(3)]
    steps = [{"classifier": {"model": str(onnx), "threshold": 3, "batch_size": batch_size}}]
    for workers in (1, 3):
        bench.run(steps, *files, out=f"of-{workers}", workers=workers)
    assert bench.bytes_of("of-1") == bench.bytes_of("of-3")


def test_another_limit_scores_nothing_again_and_whatif_answers_without_a_run(
    onnx: Path, bench: Bench
) -> None:
    source = numbered(bench, TEXTS)

    def run(**limits: Any) -> list[str]:
        bench.run([{"classifier": {"model": str(onnx), **limits}}], source)
        return bench.ids()

    def sketches() -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in bench.folder.glob("out/**/*.sketch*")}

    assert run(threshold=3) == ["2", "3", "4"]
    before = sketches()
    answer = bench.command("whatif", "out", "--set", "classifier.threshold=5", "--json")
    assert answer.returncode == 0, answer.stderr
    answered = json.loads(answer.stdout)
    assert answered["after"]["estimate"]["documents"] == 1 and answered["measured_again"] == {}
    assert run(least=2.5, most=4) == ["1", "2", "4"]
    assert sketches() == before and before
    (onnx / "model.onnx").write_bytes(onnx_model(VALUES[::-1].copy(), mean=True))
    run(threshold=3)
    assert sketches() != before


def test_scores_of_several_labels_are_a_softmax_or_by_problem_type_sigmoids() -> None:
    three = {"architectures": ["XForSequenceClassification"], "id2label": {0: "a", 1: "b", 2: "c"}}
    outputs = np.log(np.array([[1.0, 3.0, 4.0]])).astype(np.float32)
    for kind, expected in (
        (None, [1 / 8, 3 / 8, 4 / 8]),
        ("multi_label_classification", [1 / 2, 3 / 4, 4 / 5]),
        ("regression", outputs[0]),
    ):
        scores = Head(**three, problem_type=kind).scores(outputs)
        np.testing.assert_allclose(scores[0], expected, rtol=1e-6)
    extremes = np.array([[-1e4, 0, 1e4]], np.float32)
    for kind in ("single_label_classification", "multi_label_classification"):
        scores = Head(**three, problem_type=kind).scores(extremes)
        assert scores[0, 0] == 0 and scores[0, 2] == 1


def test_the_score_and_its_limit_are_of_the_chosen_label(tmp_path: Path, bench: Bench) -> None:
    pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'llmcurate[onnx]'")
    values = np.log(np.array([[1, 1], [3, 1], [1, 1], [1, 3], [1, 9]], np.float32))
    write_model(tmp_path / "two", onnx_model(values, mean=True), WORDS, labels=2)
    limits = {"score_label": "LABEL_1", "least": 0.3, "most": 0.8}
    bench.run([{"classifier": {"model": str(tmp_path / "two"), **limits}}], numbered(bench, TEXTS))
    rows = all_rows(bench)
    score = [rows[i]["classifier.score"] for i in "0123"]
    assert score == pytest.approx([1 / 4, 1 / 2, 3 / 4, 0.9])
    assert bench.ids() == ["1", "2", "4"]
    assert (rows["0"]["rule"], rows["3"]["rule"]) == ("low_score", "high_score")


def test_a_folder_that_is_no_classifier_is_a_one_line_error(onnx: Path, tmp_path: Path) -> None:
    def refused(folder: Path = onnx, **settings: Any) -> str:
        with pytest.raises(UsageError) as caught:
            step = Classifier(model=str(folder), **settings)
            step.identity()
            SequenceModel(folder, 16, 1, f"classifier: model {folder}").outputs(["low"])
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"classifier: model {folder}: ")

    assert refused(tmp_path / "none") == "no such folder"
    assert refused(tmp_path) == "config.json is missing or damaged"
    assert "score_label is 'toxic': choose one of LABEL_0" in refused(score_label="toxic")
    configure(onnx, id2label={0: "bad", 1: "good"})
    assert "score_label is not set: choose one of bad, good" in refused()
    labels = "config.json: id2label has 2 labels, but the model returns [1, 1] values"
    assert labels in refused(score_label="good")
    configure(onnx, id2label={1: "good"})
    assert refused() == "config.json: id2label: the labels must be numbered from 0"
    configure(onnx, id2label={0: "a"}, problem_type="ranking")
    assert "config.json: problem_type is 'ranking': choose one of regression, " in refused()
    configure(onnx, problem_type=None, max_position_embeddings=0)
    assert refused() == "config.json: max_position_embeddings is 0: give 8 or more"
    configure(onnx, max_position_embeddings=None, architectures=["BertModel"])
    assert refused().startswith("config.json: architectures: BertModel has no head that classifies")
    configure(onnx, architectures=["BertForSequenceClassification"])
    (onnx / "tokenizer.json").rename(onnx / "other.json")
    assert refused() == "tokenizer.json is missing"
    (onnx / "tokenizer.json").write_text("{}")
    assert refused().startswith("tokenizer.json cannot be loaded: ")
    (onnx / "config.json").write_bytes(b"\xff{")
    assert refused() == "config.json is missing or damaged"
    (onnx / "config.json").write_bytes(b'{"architectures": ["XForSequenceClassification"]}')
    (onnx / "model.onnx").unlink()
    assert "neither *.safetensors nor model.onnx exists" in refused(score_label="LABEL_1")


def pretrained(folder: Path, kind: str = "bert", **settings: Any) -> Any:
    """The pipeline of a small model with random weights, whose files it writes into the folder."""
    transformers = pytest.importorskip(
        "transformers", reason="pip install 'llmcurate[transformers]'"
    )
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    words = [*specials, *WORDS[1:]]
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"vocab_size": len(words), "intermediate_size": 64, "max_position_embeddings": 40}
    config = transformers.AutoConfig.for_model(
        kind, **sizes, pad_token_id=0, initializer_range=0.4, **settings
    )
    transformers.set_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    model.eval().save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )
    return transformers.pipeline("text-classification", model=model, tokenizer=fast, device="cpu")


def sentences(count: int) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS[1:], draw.integers(1, 60))) for _ in range(count)]


HEADS: list[dict[str, Any]] = [
    {"num_labels": 1, "problem_type": "regression"},
    {"num_labels": 3, "problem_type": "multi_label_classification"},
    {"id2label": {0: "neutral", 1: "toxic"}, "problem_type": "single_label_classification"},
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["problem_type"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_scores_are_those_of_the_pipeline_of_transformers(
    tmp_path: Path, kind: str, head: dict[str, Any]
) -> None:
    pipeline, texts = pretrained(tmp_path, kind, **head), sentences(24)
    expected = pipeline(texts, truncation=True, top_k=None)
    for batch_size in (1, PADDED):
        model = SequenceModel(tmp_path, 32, batch_size, "classifier")
        scores = model.head.scores(model.outputs(texts))
        for row, of_text in enumerate(expected):
            named = dict(zip(model.head.labels, scores[row], strict=True))
            assert named == pytest.approx({x["label"]: x["score"] for x in of_text}, abs=1e-5)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a BERT with one label."""
    folder = tmp_path_factory.mktemp("bert")
    pretrained(folder, num_labels=1)
    return folder


def scored_alike_among_other_texts(folder: Path) -> None:
    texts = sentences(60)
    for batch_size in (1, PADDED):
        model = SequenceModel(folder, 32, batch_size, "classifier")
        together = model.outputs(texts)
        assert np.ptp(together) > 0.1
        assert (model.outputs(texts[::-1])[::-1] == together).all()
        for some in (slice(0, 7), slice(20, 37), slice(59, 60)):
            assert (model.outputs(texts[some]) == together[some]).all()


def test_no_score_of_an_onnx_model_depends_on_the_other_texts_to_the_last_bit(onnx: Path) -> None:
    scored_alike_among_other_texts(onnx)


def test_no_score_of_a_bert_depends_on_the_other_texts_to_the_last_bit(bert: Path) -> None:
    scored_alike_among_other_texts(bert)


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ({"model_type": "bert", "max_position_embeddings": 10}, 10),
        ({"model_type": "roberta", "max_position_embeddings": 12, "pad_token_id": 1}, 10),
        ({"model_type": "bert", "max_position_embeddings": 4096}, 16),
        ({"model_type": "deberta-v2"}, 16),
    ],
    ids=["bert", "roberta", "long", "unlimited"],
)
def test_an_onnx_model_reads_no_more_tokens_than_it_has_positions(
    onnx: Path, config: dict[str, Any], read: int
) -> None:
    """RoBERTa's first position is that after the padding's."""
    configure(onnx, **config)
    (output,) = SequenceModel(onnx, 16, 1, "classifier").outputs(["best " * 10 + "low " * 90])
    assert output == pytest.approx((10 * 9 - (read - 10)) / read)


def test_without_the_extra_the_message_names_it(
    onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = f"classifier: model {onnx}: it needs "
    for library in ("onnxruntime", "transformers"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError) as caught:
        Classifier(model=str(onnx)).resources()
    assert str(caught.value) == f"{what}onnxruntime: pip install 'llmcurate[onnx]'"
    (onnx / "model.onnx").rename(onnx / "model.safetensors")
    with pytest.raises(UsageError) as caught:
        Classifier(model=str(onnx)).resources()
    assert str(caught.value) == f"{what}pip install 'llmcurate[transformers]'"


def test_weights_without_a_head_are_refused(bert: Path, tmp_path: Path) -> None:
    """transformers would draw them at random."""
    safetensors = pytest.importorskip("safetensors.numpy")
    shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    weights = safetensors.load_file(bert / "model.safetensors")
    body = {name: w for name, w in weights.items() if not name.startswith("classifier")}
    safetensors.save_file(body, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"^what: \*.safetensors lack classifier.bias$"):
        SequenceModel(tmp_path, 32, 1, "what")
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(UsageError, match=r"^what cannot be loaded: "):
        SequenceModel(tmp_path, 32, 1, "what")

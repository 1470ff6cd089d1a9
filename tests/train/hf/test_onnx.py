"""An encoder exported as ONNX computes what it does here, and `classifier` scores with it."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from curate.cli.app import invoke
from curate.documents.attributes import DocumentsFile
from llmcurate.base.errors import LlmcurateError
from tests.train.conftest import WORDS
from tests.train.hf.small_encoders import small
from tests.train.lab.tasks.animals import animals, settings
from tests.train.loop.small_runs import build, trained
from train.hf import onnx
from train.hf.onnx import export_onnx
from train.lab.tasks import labelled
from train.lab.tasks.predict import predict
from train.loop.pretrain import pretrain
from train.model.config import SPAN
from train.model.heads import with_task
from train.model.presets import preset

missing = [name for name in ("onnxruntime", "onnx", "onnxscript") if not find_spec(name)]
reason = f"no {missing}: pip install 'llmcurate[onnx-export]'"
pytestmark = [pytest.mark.lab, pytest.mark.skipif(bool(missing), reason=reason)]

NAMES = ("none", "some", "all of it")
MODELS = {
    "bert": small("bert-tiny", layers=1),
    "modernbert": small("modernbert-tiny", **{"attention.window": 4}),
    "electra": small("electra-tiny", layers=1, **{"embedding.size": 20, "generator.smaller": 2}),
}


def padded(lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of random ids, padded at their ends, and their attention mask."""
    draw = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(5, 300, (len(lengths), max(lengths)), generator=draw)
    return ids, (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


CASES = [("bert", "classify"), ("bert", "span"), ("modernbert", "classify"), ("electra", None)]
CASES += [("modernbert", "classify by mean")]


@pytest.mark.parametrize(("name", "kind"), CASES)
@torch.no_grad()
def test_outputs_are_those_of_each_text_by_itself(name, kind, tmp_path, small_tokenizer):
    import onnxruntime

    config = MODELS[name]
    if kind is not None:
        kind, _, pool = kind.partition(" by ")
        config = with_task(config, kind, SPAN if kind == "span" else NAMES, pool=pool or None)
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    summary = export_onnx(run, tmp_path / "onnx")
    assert summary.files == ["model.onnx", "model.onnx.data"]
    stated = json.loads((tmp_path / "onnx/config.json").read_bytes())
    assert stated["bos_token_id"] == stated["eos_token_id"]  # as its tokenizer has them
    session = onnxruntime.InferenceSession(tmp_path / "onnx/model.onnx")
    model.generator = None
    for lengths in ((1,), (2,), (9, 4), (64, 1, 33), (16, 16, 16, 5, 2)):
        ids, mask = padded(lengths)
        segments = (torch.arange(ids.shape[1]) > 6).long().expand(ids.shape)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        names = [each.name for each in session.get_inputs()]
        assert names == [*given][: 3 if config.embedding.segments else 2]
        outputs = session.run(None, {name: given[name].numpy() for name in names})
        for row, length in enumerate(lengths):
            kinds = segments[row : row + 1, :length] if len(names) > 2 else None
            expected = model.features(ids[row : row + 1, :length], segments=kinds)[0]
            expected = expected if kind is None else model.logits(expected)
            if kind == "classify":
                found = outputs[0][row]
                expected = expected[0]
            elif kind == "span":
                found = np.stack([output[row, :length] for output in outputs], -1)
            else:
                found = outputs[0][row, :length]
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-5, rtol=1e-4)


def test_the_classifier_step_scores_as_predict_labels(shard_folder, tmp_path, capsys):
    file = animals(tmp_path, 60)["classify"]
    model = small("bert-tiny", layers=1, vocab=300)
    train = settings("classify", shard_folder, steps=80, lr=0.003)
    pretrain(file, tmp_path / "run", model=model, train=train)
    arguments = [str(tmp_path / "run"), "-o", str(tmp_path / "onnx"), "--format", "onnx"]
    assert invoke(["export", *arguments, "--dry-run"]) == 0
    assert "as BertForSequenceClassification" in capsys.readouterr().out
    assert invoke(["export", *arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["family"], answer["dtype"]) == ("bert", "float32")
    step = {"model": str(tmp_path / "onnx"), "score_label": "some", "batch_size": 8}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps({"steps": [{"classifier": step}]}))
    assert (
        invoke(["run", str(recipe), str(file), "-o", str(tmp_path / "out"), "--workers", "1"]) == 0
    )
    parts = [DocumentsFile(path).read() for path in (tmp_path / "out/corpus").glob("*.parquet")]
    rows = [row for part in parts for row in part.to_pylist()]
    scores = {row["text"]: row["classifier.score"] for row in rows}
    lines = predict(tmp_path / "run", file).lines
    assert len({line["prediction"]["label"] for line in lines}) == 2
    for line in lines:
        said = line["prediction"]
        some = said["probability"] if said["label"] == "some" else 1 - said["probability"]
        assert scores[line["text"]] == pytest.approx(some, abs=1e-4)


@pytest.mark.parametrize("special", [["[UNK]"], ["[UNK]", "[CLS]", "[SEP]"]])
def test_texts_and_pairs_are_encoded_as_in_training(special, tmp_path, monkeypatch):
    tokenizer = Tokenizer(WordLevel({name: n for n, name in enumerate(special + WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens([*special[1:], "<|endoftext|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    run = trained(tmp_path / "run", build(MODELS["bert"]), tmp_path / "tokenizer.json")
    monkeypatch.setattr(onnx, "_write", lambda encoder, path: None)
    export_onnx(run, tmp_path / "onnx")
    exported = Tokenizer.from_file(str(tmp_path / "onnx/tokenizer.json"))
    encoder = labelled.Encoder(tmp_path / "tokenizer.json", 64, read_last=False)
    for texts in (("the cat",), ("the cat sat", "a mat")):
        sample = labelled.Sample(line=1, texts=texts, labels=(), key="")
        (window,) = encoder.windows("classify", [sample], ())
        found = exported.encode(*texts)
        assert (found.ids, found.type_ids) == (window.tokens.tolist(), window.segments.tolist())


@torch.no_grad()
def test_a_text_is_classified_by_its_last_token_if_the_model_was_trained_so():
    model = build(with_task(MODELS["bert"], "classify", NAMES))
    ids, mask = padded((9, 4))
    found = onnx.Encoder(model, read_last=True)(ids, mask)
    for row, length in enumerate((9, 4)):
        torch.testing.assert_close(found[row], model(ids[row : row + 1, :length])[0, -1])


def test_an_encoder_that_pytorch_cannot_export_is_a_one_line_error(tmp_path, small_tokenizer):
    run = trained(tmp_path / "run", build(small("bigbird-tiny", layers=1)), small_tokenizer)
    with pytest.raises(LlmcurateError, match="PyTorch cannot write it as ONNX: ") as caught:
        export_onnx(run, tmp_path / "onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize("form", ["decoder", "encoder-decoder"])
def test_only_encoders_are_exported(form, tmp_path, small_tokenizer):
    config = preset("tiny" if form == "decoder" else "t5-tiny", vocab=270, context=64)
    run = trained(tmp_path / "run", build(config), small_tokenizer)
    with pytest.raises(
        LlmcurateError, match=f"--format onnx takes encoders; the model is of the form {form}"
    ):
        export_onnx(run, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_without_the_packages_the_extra_is_named(tmp_path, small_tokenizer, monkeypatch, capsys):
    run = trained(tmp_path / "run", build(MODELS["bert"]), small_tokenizer)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert invoke(["export", str(run), "-o", str(tmp_path / "onnx"), "--format", "onnx"]) == 1
    assert "onnxscript: run pip install 'llmcurate[onnx-export]'" in capsys.readouterr().err
    assert not (tmp_path / "onnx").exists()

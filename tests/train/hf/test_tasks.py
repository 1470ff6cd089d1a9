"""A model with a head for a task computes in transformers what it does here, and comes back."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.hf.small_encoders import small
from tests.train.loop.small_runs import build, trained
from train import objective_settings
from train.generate import load as load_run
from train.hf.export import export
from train.hf.families import FAMILIES, family_of
from train.hf.family import CLASSES
from train.hf.load import import_model, inspect_folder
from train.measure.accounting import parameters
from train.model.config import FIXED, ModelConfig, Task
from train.model.heads import with_task
from train.model.presets import preset

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.lab
transformers.logging.set_verbosity_error()

NAMES = ("none", "some", "all of it")
SIZES = {
    "vocab": 300, "hidden": 48, "layers": 2, "context": 64, "feed_forward.width": 64,
    "attention": {"heads": 4, "kv_heads": 2, "head_dim": 12},
}  # fmt: skip
FULL = {"attention": {"heads": 4, "kv_heads": 4, "head_dim": 12}}
WIDE = {"feed_forward.width": 192}
OLMO2 = {
    "norm.place": "out",
    "attention": {"heads": 4, "kv_heads": 2, "head_dim": 12, "qk_norm": True}
    | {"qk_norm_whole": True},
}
MODELS = {
    "bert": small("bert-tiny"),
    "roberta": small("roberta-tiny"),
    "albert": small("albert-tiny", **{"embedding.size": 20}),
    "modernbert": small("modernbert-tiny", **{"attention.window": 4}),
    "electra": small("electra-tiny", **{"generator": None, "embedding.size": 20}),
    "deberta": small("deberta-tiny"),
    "deberta-v2": small("deberta-v3-small", layers=2),
    "llama": change(preset("tiny"), SIZES, "model"),
    "qwen2": change(preset("tiny"), {**SIZES, "attention.bias": "qkv"}, "model"),
    "gpt2": change(preset("gpt2-xl"), {**SIZES, **FULL}, "model"),
    "gptj": change(preset("gptj-6b"), {**SIZES, **FULL, "position.dim": 8}, "model"),
    "gpt_neox": change(preset("pythia-160m"), {**SIZES, **FULL, "position.dim": 4}, "model"),
    "bloom": change(preset("bloom-560m"), {**SIZES, **FULL, **WIDE}, "model"),
    "opt": change(preset("opt-125m"), {**SIZES, **FULL}, "model"),
    "mpt": change(preset("mpt-7b"), {**SIZES, **FULL, **WIDE}, "model"),
    "falcon": change(preset("falcon-40b"), SIZES, "model"),
    "olmo": change(preset("olmo-1b"), {**SIZES, **FULL}, "model"),
    "olmo2": change(preset("tiny"), {**SIZES, **OLMO2}, "model"),
    "smollm3": change(preset("tiny"), {**SIZES, "position.pattern": "RN"}, "model"),
}
CASES = [
    (name, kind)
    for name, config in MODELS.items()
    for kind in CLASSES
    if kind in FAMILIES[name].tasks
]


def with_head(config: ModelConfig, kind: str) -> ModelConfig:
    return with_task(config, kind, FIXED.get(kind, NAMES))


@pytest.mark.parametrize(("name", "kind"), CASES)
@torch.no_grad()
def test_logits_are_equal_and_weights_come_back(name, kind, tmp_path, small_tokenizer):
    config = with_head(MODELS[name], kind)
    model = build(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    summary = export(run, tmp_path / "hf")
    assert summary.family == name and summary.parameters == parameters(config)
    theirs, info = getattr(transformers, summary.architecture).from_pretrained(
        tmp_path / "hf", output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert sum(weight.numel() for weight in theirs.parameters()) == parameters(config)
    ids = torch.randint(5, 300, (1, 40), generator=torch.Generator().manual_seed(2))
    if kind == "choice":
        ids = torch.cat([ids, ids.flip(1), ids.roll(7, 1)])
    kinds = {}
    if config.embedding.segments == 2:
        kinds = {"token_type_ids": (torch.arange(40) > 17).long().expand(len(ids), -1)}
    ours = model(ids, segments=kinds.get("token_type_ids"))
    if kind == "choice":  # of one sample
        out = theirs.eval()(ids[None], **{name: value[None] for name, value in kinds.items()})
    else:
        out = theirs.eval()(ids, **kinds)
    if kind == "span":
        expected = torch.stack([out.start_logits, out.end_logits], -1)
    elif kind == "choice":
        expected, ours = out.logits[0], ours[:, 0, 0]
    elif kind == "classify":
        expected, ours = out.logits, ours[:, -1 if config.causal else 0]
    else:
        expected = out.logits
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
    if kind not in FIXED:
        assert theirs.config.id2label == dict(enumerate(NAMES))
    import_model(tmp_path / "hf", tmp_path / "again")
    back, _ = load_run(tmp_path / "again")
    assert back.config.head.task == config.head.task
    for key, weight in model.state_dict().items():
        torch.testing.assert_close(back.state_dict()[key], weight, rtol=0, atol=0)
    assert summary.architecture in (tmp_path / "hf/README.md").read_text()


def test_a_family_without_such_a_class_is_named(tmp_path, small_tokenizer):
    config = with_head(MODELS["llama"], "span")
    with pytest.raises(LlmcurateError, match=r"head\.task span"):
        family_of(config)
    model = build(with_head(MODELS["bert"], "classify"))
    export(trained(tmp_path / "run", model, small_tokenizer), tmp_path / "hf")
    path = tmp_path / "hf/config.json"
    values = json.loads(path.read_bytes())
    for names, message in (
        ({"0": "a", "2": "b"}, "1 is missing"),
        ({"0": "a", "1": "a"}, "two or more labels"),
        ({"0": "a"}, "two or more labels"),
    ):
        path.write_text(json.dumps(values | {"id2label": names}))
        with pytest.raises(LlmcurateError, match=message):
            inspect_folder(tmp_path / "hf")


def test_a_head_with_another_layer_than_the_class_has_is_refused():
    config = change(
        with_head(MODELS["deberta-v2"], "classify"), {"head.task.before": "pool"}, "model"
    )
    with pytest.raises(LlmcurateError, match=r"head\.task\.before pool \(expected gelu\)"):
        family_of(config)


@pytest.mark.parametrize(("name", "reads"), [("bert", "last"), ("llama", "first")])
def test_a_classifier_by_another_token_than_the_class_reads_is_refused(
    name, reads, tmp_path, small_tokenizer
):
    model = build(with_head(MODELS[name], "classify"))
    for chosen in (reads, "auto"):
        objective = objective_settings.Task(kind="classify", reads=chosen)
        run = trained(tmp_path / chosen, model, small_tokenizer, objective=objective)
        if chosen == reads:
            with pytest.raises(LlmcurateError, match=f"by its {reads} token"):
                export(run, tmp_path / "hf")
    assert export(run, tmp_path / "hf").architecture.endswith("ForSequenceClassification")


def test_every_class_is_one_that_transformers_has():
    classes = [own.class_for(CLASSES[kind]) for own in FAMILIES.values() for kind in own.tasks]
    assert len(classes) > 15
    assert all(hasattr(transformers, name) for name in classes)


def test_the_layers_before_a_task_head_follow_the_model_family():
    before = {
        (name, kind): with_head(config, kind).head.task.before  # type: ignore[union-attr]
        for name, config in MODELS.items()
        for kind in ("classify", "token")
    }
    assert before["bert", "classify"] == "pool" and before["bert", "token"] == "nothing"
    assert before["modernbert", "classify"] == before["modernbert", "token"] == "transform"
    assert before["gpt2", "classify"] == "nothing"
    assert before["electra", "classify"] == before["deberta", "classify"] == "gelu"
    for labels in ((), ("a",), ("a", "a")):
        with pytest.raises(LlmcurateError, match="give two or more labels"):
            Task(kind="classify", labels=labels)
    with pytest.raises(LlmcurateError, match="only an encoder chooses"):
        with_task(MODELS["llama"], "choice", FIXED["choice"])
    with pytest.raises(LlmcurateError, match="give start and end"):
        Task(kind="span", labels=NAMES)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@torch.no_grad()
def test_modernbert_pools_a_text_as_its_config_says(pooling, tmp_path, small_tokenizer):
    shape = {"vocab_size": 300, "hidden_size": 48, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 3, "intermediate_size": 64, "classifier_pooling": pooling}
    shape |= dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id"), 0)
    shape |= dict.fromkeys(("bos_token_id", "eos_token_id"), 0)
    config = transformers.ModernBertConfig(**shape, num_labels=3, attn_implementation="eager")
    torch.manual_seed(0)
    theirs = transformers.ModernBertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path / "hf")
    shutil.copy(small_tokenizer, tmp_path / "hf/tokenizer.json")
    import_model(tmp_path / "hf", tmp_path / "run")
    ours, _ = load_run(tmp_path / "run")
    ids = torch.randint(5, 260, (2, 12), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(12) < torch.tensor([[12], [7]])).long()
    expected = theirs(ids, attention_mask=mask).logits
    torch.testing.assert_close(ours(ids, documents=mask - 1)[:, 0], expected, atol=1e-5, rtol=1e-4)
    packed = torch.cat([ids[1, :7], ids[0]])[None]
    numbers = torch.tensor([[0] * 7 + [1] * 12])
    found = ours(packed, documents=numbers)[0, [7, 0]]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    export(tmp_path / "run", tmp_path / "again")
    assert (
        json.loads((tmp_path / "again/config.json").read_bytes())["classifier_pooling"] == pooling
    )
    again = with_task(ours.config, "classify", NAMES).head.task
    assert again is not None and (again.before == "mean") == (pooling == "mean")

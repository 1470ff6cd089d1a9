"""Models that transformers wrote, also in the spellings of old files, compute the same here."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmcurate.base.errors import LlmcurateError
from train.hf.export import export
from train.hf.load import import_model, load
from train.lab.tasks.predict import predict
from train.model.decoder import Decoder

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.lab

SIZES = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
DEBERTA = {
    **SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0,
    "position_biased_input": False,
}  # fmt: skip
V3 = {**DEBERTA, "share_att_key": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm"}
GEMMA2 = {
    **GROUPED, "num_hidden_layers": 4, "head_dim": 16, "query_pre_attn_scalar": 24,
    "sliding_window": 8, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0,
}  # fmt: skip
FALCON = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
CLASSES = {
    "BertForPreTraining": SIZES,
    "BertForMaskedLM": SIZES,
    "RobertaForMaskedLM": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
    "XLMRobertaForMaskedLM": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
    "AlbertForMaskedLM": {**SIZES, "embedding_size": 16},
    "ElectraForMaskedLM": {**SIZES, "embedding_size": 16},
    "ModernBertForMaskedLM": {**SIZES, "num_hidden_layers": 4, "local_attention": 16},
    "DebertaForMaskedLM": DEBERTA,
    "DebertaV2ForMaskedLM": V3,
    "GPT2LMHeadModel": GPT2,
    "GPTNeoXForCausalLM": SIZES,
    "BloomForCausalLM": {
        "vocab_size": 300, "hidden_size": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0
    },
    "LlamaForCausalLM": GROUPED,
    "MixtralForCausalLM": {**GROUPED, "num_local_experts": 4},
    "Qwen2MoeForCausalLM": {
        **GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40,
    },
    "Qwen3ForCausalLM": {**GROUPED, "head_dim": 16},
    "Qwen3MoeForCausalLM": {
        **GROUPED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    },
    "Phi3ForCausalLM": {**GROUPED, "sliding_window": 16},
    "MptForCausalLM": {
        "vocab_size": 300, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64
    },
    "FalconForCausalLM": FALCON,
    "MptForCausalLM of 6 heads, clipped": {
        "vocab_size": 300, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 64,
        "attn_config": {"clip_qkv": 1.0},
    },
    "OlmoForCausalLM": {**GROUPED, "clip_qkv": 0.5},
    "FalconForCausalLM with two norms": {
        **FALCON, "num_kv_heads": 2, "new_decoder_architecture": True
    },
    "Olmo2ForCausalLM": GROUPED,
    "Olmo3ForCausalLM": {**GROUPED, "num_hidden_layers": 4, "sliding_window": 8},
    "Olmo3ForCausalLM with scaling": {
        **GROUPED, "num_hidden_layers": 4, "sliding_window": 8,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                "rope_theta": 500_000.0,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
        },
    },
    "SmolLM3ForCausalLM": {**GROUPED, "num_hidden_layers": 5},
    "GemmaForCausalLM": {**GROUPED, "head_dim": 16},
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": {**GEMMA2, "num_hidden_layers": 6},
    "Gemma3ForCausalLM with scaling": {
        **GEMMA2, "num_hidden_layers": 6, "final_logit_softcapping": None,
        "query_pre_attn_scalar": 16,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
}  # fmt: skip


def of_class(name: str, **more):
    """A model of transformers with random weights."""
    own = getattr(transformers, name.split()[0])
    torch.manual_seed(0)
    model = own(own.config_class(**CLASSES[name], **more, attn_implementation="eager")).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model


def logits_of(model, ids):
    out = model(input_ids=ids)
    return out.logits if "logits" in out else out.prediction_logits


def check_equal(theirs, folder) -> None:
    """The model in ``folder`` computes the same logits as ``theirs``."""
    config, weights = load(folder)
    model = Decoder(config)
    model.load_state_dict(weights)
    ids = torch.randint(5, 300, (2, 40), generator=torch.Generator().manual_seed(2))
    segments = torch.zeros_like(ids) if config.embedding.segments else None
    with torch.no_grad():
        ours = model.eval().logits(model.features(ids, segments=segments))
        expected = logits_of(theirs, ids)
    assert float((ours - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


@pytest.fixture
def saved(tmp_path, small_tokenizer):
    def save(model):
        model.save_pretrained(tmp_path / "hf")
        (tmp_path / "hf" / "tokenizer.json").write_bytes(small_tokenizer.read_bytes())
        return tmp_path / "hf"

    return save


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_computes_the_same_here_and_after_our_export(name, saved, tmp_path):
    theirs = of_class(name)
    folder = saved(theirs)
    check_equal(theirs, folder)
    import_model(folder, tmp_path / "run")
    architecture = export(tmp_path / "run", tmp_path / "out").architecture
    again = getattr(transformers, architecture).from_pretrained(
        tmp_path / "out", attn_implementation="eager"
    )
    check_equal(again.eval(), folder)
    again.save_pretrained(tmp_path / "again")
    check_equal(theirs, tmp_path / "again")


def test_the_layers_of_gemma_in_the_spelling_of_older_files(saved):
    """Gemma 2's windows alternate; Gemma 3 has a pattern and two bases of rotary positions."""
    for name, old in (
        ("Gemma2ForCausalLM", {"rope_theta": 10_000.0}),
        (
            "Gemma3ForCausalLM with scaling",
            {
                "sliding_window_pattern": 6,
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
    ):
        theirs = of_class(name)
        folder = saved(theirs)
        path = folder / "config.json"
        values = json.loads(path.read_bytes())
        del values["layer_types"], values["rope_parameters"]
        path.write_text(json.dumps(values | old))
        check_equal(theirs, folder)


VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip


@pytest.mark.parametrize("version", ["hub", "transformers 4.52"])
def test_the_text_model_of_one_that_also_reads_images_opens(version, saved, tmp_path):
    """Gemma 3 from 4B on, whose config.json leaves out what is usual."""
    name = "Gemma3ForConditionalGeneration"
    text = {**CLASSES["Gemma3ForCausalLM with scaling"], "num_attention_heads": 8}
    usual = {"vocab_size": 262_208, "num_attention_heads": 8}
    CLASSES[name] = {
        "text_config": text, "vision_config": VISION, "mm_tokens_per_image": 4,
        "image_token_index": 299,
    }  # fmt: skip
    theirs = of_class(name)
    folder = saved(theirs)
    path = folder / "config.json"
    values = json.loads(path.read_bytes())
    assert values["text_config"].pop("num_attention_heads") == usual["num_attention_heads"]
    path.write_text(json.dumps(values))
    if version != "hub":
        change_weights(
            folder,
            lambda weights: {
                key.replace("language_model.model.", "model.language_model."): weight
                for key, weight in weights.items()
            },
        )
    check_equal(theirs, folder)
    left_out = import_model(folder, tmp_path / "run").left_out
    kinds = {"vision_tower", "multi_modal_projector"}
    assert {key.partition(".")[0] for key in left_out} == kinds
    assert export(tmp_path / "run", tmp_path / "out").architecture == "Gemma3ForCausalLM"
    again = transformers.Gemma3ForCausalLM.from_pretrained(tmp_path / "out")
    check_equal(again.eval(), folder)
    del values["text_config"]["vocab_size"]
    path.write_text(json.dumps(values))
    with pytest.raises(LlmcurateError, match=r"describes [\d,]+ parameters, the files hold"):
        load(folder)


def old_names(name):
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    return name.replace("LayerNorm.bias", "LayerNorm.beta")


def change_weights(folder, change) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def test_names_of_older_versions_and_other_heads(saved, tmp_path):
    theirs = of_class("BertForPreTraining")
    folder = saved(theirs)
    path = folder / "config.json"
    path.write_text(
        json.dumps({**json.loads(path.read_bytes()), "architectures": ["BertForMaskedLM"]})
    )

    def change(weights):
        weights["bert.embeddings.position_ids"] = torch.arange(64)[None]
        return {old_names(name): weight for name, weight in weights.items()}

    change_weights(folder, change)
    check_equal(theirs, folder)
    left_out = import_model(folder, tmp_path / "run").left_out
    assert {name.split(".")[-2] for name in left_out} == {"dense", "seq_relationship"}


@pytest.mark.parametrize("name", ["MixtralForCausalLM", "Qwen2MoeForCausalLM"])
def test_experts_in_one_tensor_as_the_class_of_transformers_5_holds_them(name, saved):
    theirs = of_class(name)
    folder = saved(theirs)
    state = {key: value.clone() for key, value in theirs.state_dict().items()}
    assert any(value.dim() == 3 for value in state.values())
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    check_equal(theirs, folder)


def pickled(folder, *, parts: int = 1, **how) -> None:
    """Replace the safetensors of a folder by files of torch.save."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {f"pytorch_model-{part}.bin": [*weights][part::parts] for part in range(parts)}
    for file, keys in names.items():
        torch.save({key: weights[key] for key in keys}, folder / file, **how)
    if parts == 1:
        (folder / "pytorch_model-0.bin").rename(folder / "pytorch_model.bin")
    else:
        index = {"weight_map": {key: file for file, keys in names.items() for key in keys}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


FORMATS = {"zip": {}, "before torch 1.6": {"_use_new_zipfile_serialization": False}}


@pytest.mark.parametrize("how", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("parts", [1, 3])
def test_files_of_torch_save_open(how, parts, saved):
    theirs = of_class("BertForMaskedLM")
    folder = saved(theirs)
    change_weights(folder, lambda weights: {old_names(key): w for key, w in weights.items()})
    pickled(folder, parts=parts, **how)
    check_equal(theirs, folder)


class Code:
    def __reduce__(self):
        return print, ("run",)


def compressed(folder) -> None:
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def put(key, value):
    def change(folder):
        path = folder / "pytorch_model.bin"
        torch.save({**torch.load(path), key: value}, path)

    return change


def write_pickle(folder) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Code()}))


HOSTILE = {
    "code": (put("x", Code()), r"pytorch_model.bin: cannot be read"),
    "code in a plain pickle": (write_pickle, r"pytorch_model.bin: cannot be read"),
    "compressed parts": (compressed, r"pytorch_model.bin: its parts are compressed"),
    "terabytes": (
        put("wte.weight", torch.zeros(1).expand(2**40)),
        r"pytorch_model.bin: wte.weight \[1099511627776\] is larger than the file",
    ),
    "no tensor": (put("wte.weight", [1, 2]), "pytorch_model.bin: wte.weight is no tensor"),
    "another shape": (
        put("transformer.wte.weight", torch.zeros(300, 31)),
        r"pytorch_model.bin: transformer.wte.weight is float32 \[300, 31\]",
    ),
}


@pytest.mark.parametrize(("damage", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_is_refused_in_one_line(damage, message, saved, capfd):
    folder = saved(of_class("GPT2LMHeadModel"))
    pickled(folder)
    damage(folder)
    with pytest.raises(LlmcurateError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().out == ""


def drop(key):
    return lambda weights: {old_names(name): w for name, w in weights.items() if name != key}


def resize(key):
    def change(weights):
        renamed = {old_names(name): weight for name, weight in weights.items()}
        return {**renamed, key: torch.zeros(3, 3)}

    return change


DENSE = "bert.encoder.layer.0.output.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop(DENSE), rf"model.safetensors: {DENSE} missing from the weights"),
        (resize(DENSE), rf"model.safetensors: {DENSE} is \[3, 3\], config.json requires \[32, 48"),
    ],
    ids=["missing", "another shape"],
)
def test_what_does_not_fit_the_class_is_named_with_its_file(change, message, saved, capfd):
    folder = saved(of_class("BertForMaskedLM"))
    change_weights(folder, change)
    capfd.readouterr()
    with pytest.raises(LlmcurateError, match=message):
        load(folder)
    assert capfd.readouterr() == ("", "")


def test_without_transformers_names_of_the_files_decide(saved, monkeypatch):
    llama, gpt2 = of_class("LlamaForCausalLM"), of_class("GPT2LMHeadModel")
    monkeypatch.setitem(sys.modules, "transformers", None)
    check_equal(llama, saved(llama))
    folder = saved(gpt2)

    def published(weights):
        tables = {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64) for layer in range(2)}
        return tables | {key.removeprefix("transformer."): w for key, w in weights.items()}

    change_weights(folder, published)
    check_equal(gpt2, folder)
    change_weights(folder, lambda weights: {f"x.{key}": w for key, w in weights.items()})
    with pytest.raises(LlmcurateError, match=r"pip install 'llmcurate\[transformers\]'"):
        load(folder)


TASKS = {
    "several labels": {"problem_type": "multi_label_classification", "num_labels": 3},
    "regression": {"problem_type": "regression", "num_labels": 2},
    "one number": {"num_labels": 1},
    "one label": {"num_labels": 3},
}


CLASSIFIERS = {
    "BertForSequenceClassification": SIZES,
    "DebertaForSequenceClassification": DEBERTA,
    "DebertaV2ForSequenceClassification": V3,
    "ElectraForSequenceClassification": {**SIZES, "embedding_size": 16},
    "GemmaForSequenceClassification": {**GROUPED, "head_dim": 16},
}


@pytest.mark.parametrize(
    ("name", "more"),
    [("BertForSequenceClassification", more) for more in TASKS.values()]
    + [(name, TASKS["several labels"]) for name in CLASSIFIERS]
    + [("DebertaV2ForSequenceClassification", TASKS["one number"])],
)
def test_a_head_keeps_its_kind_and_predict_shows_it(name, more, saved, tmp_path):
    CLASSES[name] = CLASSIFIERS[name]
    theirs = of_class(name, **more)
    folder = saved(theirs)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "the cat sat"}\n{"text": "a mat"}\n')
    prediction = predict(folder, lines).lines[1]["prediction"]
    import_model(folder, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert again.num_labels == theirs.num_labels
    assert predict(tmp_path / "out", lines).lines[1]["prediction"] == prediction
    if "problem_type" in more:
        assert again.config.problem_type == theirs.config.problem_type
    names = set(theirs.config.id2label.values())
    if more.get("problem_type") == "multi_label_classification":
        assert set(prediction["probabilities"]) == names
        likely = [name for name, share in prediction["probabilities"].items() if share > 0.5]
        assert prediction["labels"] == likely
    elif more is TASKS["one label"]:
        assert prediction["label"] in names
    else:
        assert set(prediction["values"]) == names


def test_the_numbers_of_several_labels_are_the_sigmoids_of_the_logits(saved, tmp_path):
    CLASSES["GPT2ForSequenceClassification"] = {**GPT2, "pad_token_id": 0}
    theirs = of_class("GPT2ForSequenceClassification", **TASKS["several labels"])
    folder = saved(theirs)
    (tmp_path / "lines.jsonl").write_text('{"text": "the cat sat"}\n')
    prediction = predict(folder, tmp_path / "lines.jsonl").lines[0]["prediction"]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = tokenizer("the cat sat").input_ids
    expected = theirs(torch.tensor([ids])).logits.sigmoid()[0].tolist()
    assert [*prediction["probabilities"].values()] == pytest.approx(expected, abs=1e-5)

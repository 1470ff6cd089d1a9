"""An encoder-decoder computes in transformers what it does here, and comes back bit for bit."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.hf.encoder_decoder_cases import CASES, T5, spread
from tests.train.loop.small_runs import build, trained
from train.generate import load as load_run
from train.hf.export import export
from train.hf.families import family_of
from train.hf.load import import_model, load
from train.model.decoder import Decoder

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()


def draw(rows: int, length: int) -> torch.Tensor:
    return torch.randint(5, 300, (rows, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.lab
@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
@torch.no_grad()
def test_the_export_computes_the_same_and_comes_back(config, tmp_path, small_tokenizer):
    model = spread(config)
    run = trained(tmp_path / "run", model, small_tokenizer)
    architecture = export(run, tmp_path / "hf").architecture
    theirs, info = getattr(transformers, architecture).from_pretrained(
        tmp_path / "hf", output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    source, tokens = draw(2, 40), draw(2, 30)
    real = torch.arange(40) < torch.tensor([[40], [25]])
    logits = theirs.eval()(
        input_ids=source, attention_mask=real.long(), decoder_input_ids=tokens
    ).logits
    ours = model(tokens, source=source, source_documents=real.long() - 1)
    assert float((logits - ours).abs().max()) <= 1e-5 * float(ours.abs().max())
    end = theirs.config.eos_token_id
    start = config.encoder.start
    assert theirs.generation_config.decoder_start_token_id == (end if start is None else start)

    import_model(tmp_path / "hf", tmp_path / "back")
    back, _ = load_run(tmp_path / "back")
    assert back.config == config
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


THEIRS = {
    "t5": {"num_heads": 3, "num_decoder_layers": 1},
    "mt5": {"num_heads": 4, "feed_forward_proj": "gated-gelu"},
    "bart": {
        **{f"{stack}_{what}": 4 for stack in ("encoder", "decoder") for what in ("layers",)},
        **{f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": 50 for stack in ("encoder", "decoder")},
        "max_position_embeddings": 64,
    },
}


@pytest.mark.lab
@pytest.mark.parametrize("name", THEIRS)
@torch.no_grad()
def test_a_model_of_transformers_computes_the_same_here(name, tmp_path):
    """Of a class of theirs, with random weights, as they save it."""
    values = {"vocab_size": 90, "d_model": 64, "d_kv": 16, "d_ff": 50, "num_layers": 2}
    kind = transformers.AutoConfig.for_model(name, **values, **THEIRS[name])
    theirs = transformers.AutoModelForSeq2SeqLM.from_config(kind).eval()
    for weight in theirs.parameters():
        weight.mul_(1.5)
    theirs.save_pretrained(tmp_path)
    if name == "mt5":  # as the published files have it, a head of its own
        with_head(tmp_path)
        theirs = type(theirs).from_pretrained(tmp_path).eval()
    config, weights = load(tmp_path)
    model = Decoder(config)
    model.load_state_dict(weights)
    source, tokens = draw(2, 20) % 90, draw(2, 15) % 90
    expected = theirs(input_ids=source, decoder_input_ids=tokens).logits
    ours = model.eval()(tokens, source=source)
    assert float((expected - ours).abs().max()) <= 1e-5 * float(ours.abs().max())


def with_head(folder):
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["shared.weight"].flip(0)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.lab
def test_copies_of_the_embedding_are_compared(tmp_path, small_tokenizer):
    export(trained(tmp_path / "run", build(T5), small_tokenizer), tmp_path / "hf")
    path = tmp_path / "hf" / "model.safetensors"
    weights = load_file(path)
    copy = {"encoder.embed_tokens.weight": weights["shared.weight"].clone()}
    save_file(weights | copy, path, {"format": "pt"})
    assert load(tmp_path / "hf")[0] == T5
    copy["encoder.embed_tokens.weight"][3, 3] += 1
    save_file(weights | copy, path, {"format": "pt"})
    with pytest.raises(LlmcurateError, match=r"encoder\.embed_tokens\.weight differs"):
        load(tmp_path / "hf")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"encoder.shared": True, "layers": 3}, r"encoder.shared True \(expected False\)"),
        ({"position": "rope"}, "position.kind rope"),
        ({"feed_forward.activation": "geglu"}, "feed_forward.activation geglu"),
    ],
)
def test_models_without_a_class_are_refused_with_the_nearest_class(changes, named):
    with pytest.raises(LlmcurateError, match=f"nearest is t5, but for {named}"):
        family_of(change(T5, changes, "model"))

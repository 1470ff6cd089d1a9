"""The products as recipe steps: thin settings over tokenize_kit."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from curate.steps.contracts import Identity, Product, ProductContext, sha256, step, with_settings
from llmcurate.base.disk.files import remove
from llmcurate.base.disk.process import peak_bytes
from llmcurate.base.disk.units import counted, parse_count
from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.index import index_of
from tokenize_kit.learn.options import TrainingOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenize_kit.shards.writer import Keys


Made = TypeVar("Made", bound=Callable[..., Any])
Size = Annotated[int, Field(ge=2)]


def packing(name: str) -> Callable[[Made], Made]:
    """Says that a function of a corpus and a folder for scratch orders documents: it returns what
    they are drawn by and a line that says how it went."""
    return lambda made: made


Vocab = Size | tuple[Size, ...]
_VOCAB = Field(
    32_000,
    description=(
        "Tokens of the vocabulary, special and reserved ones included; of several sizes each gets"
        " a folder."
    ),
)


class _Learned(Product):
    """The settings of training, and the size of the vocabulary."""

    vocab: Vocab = _VOCAB


if not TYPE_CHECKING:
    _Learned = with_settings(Product, TrainingOptions, sizes=("vocab", Vocab, _VOCAB))


@step("tokenizer")
class TokenizerProduct(_Learned):
    """Trains tokenizers on the corpus: tokenizer.json, its card and card.html, of several sizes in
    a folder each."""

    SECTIONS: ClassVar = TrainingOptions.SECTIONS
    makes: ClassVar[str] = "tokenizer"

    @field_validator("vocab", mode="before")
    @classmethod
    def _sizes(cls, value: Any) -> Any:
        """`5000,32000` of a command line as numbers."""
        if isinstance(value, str):
            try:
                sizes = tuple(int(parse_count(size)) for size in value.split(","))
            except ValueError:
                raise ValueError(f"{value!r}: give one number or several, as 5000,32000") from None
            return sizes if len(sizes) > 1 else sizes[0]
        return value

    @model_validator(mode="after")
    def _checked(self) -> TokenizerProduct:
        try:
            self._options()
        except LlmcurateError as error:
            raise ValueError(str(error)) from None
        return self

    def _options(self) -> TrainingOptions:
        settings = self.model_dump(exclude={"vocab"})
        sizes = (self.vocab,) if isinstance(self.vocab, int) else self.vocab
        return TrainingOptions(sizes=sizes, **settings)

    def identity(self) -> Identity:
        named = ("dictionary", "chat_template")
        files = {name: getattr(self, name) for name in named}
        read = {name: sha256(Path(path)) for name, path in files.items() if path}
        identity = super().identity()
        identity.contents |= read
        return identity

    def build(self, context: ProductContext) -> dict[str, Any]:
        from tokenize_kit.learn.training import train_on_corpus

        stages: list[dict[str, str | float]] = []

        def report(stage: str, seconds: float | None) -> None:
            peak = peak_bytes()
            spent = "" if seconds is None else f": {seconds:.1f} s"
            context.say(f"{stage}{spent}; peak memory {peak / 2**20:,.0f} MiB")
            if seconds is not None:
                stages.append({"stage": stage, "seconds": round(seconds, 3), "peak_bytes": peak})

        options = self._options()
        column = options.column or "lang"
        names = ["text", column] if column in ("id", "source", "lang") else None
        cards = train_on_corpus(lambda: context.corpus(names), context.out, options, report)
        sentences = [line for card in cards for line in card.warnings]
        warnings = list(dict.fromkeys(sentences))
        made = [card.json() for card in cards]
        summary = {"card": made[0], "warnings": warnings, "stages": stages}
        return summary if len(cards) == 1 else summary | {"cards": made}


def _unchanged(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """The documents, without their edits. Refuses one whose text a step has changed where `column`
    has ranges of it: they are of the text before."""
    import pyarrow.compute as pc

    for batch in batches:
        names = batch.schema.names
        if "edits" in names and column in names:
            changed = pc.fill_null(pc.list_value_length(batch["edits"]), 0)
            for row in pc.indices_nonzero(changed).to_pylist():
                value = batch[column][row].as_py()
                if value in (True, False, None, "true", "false", [], "[]"):
                    continue  # of the document as a whole, or of nothing
                step = batch["edits"][row][0]["step"].as_py()
                raise UsageError(
                    f"document {batch['id'][row]}: the step {step} changed its text, so the ranges"
                    f" in {column} no longer fit; encode the documents before that step, or without"
                    " a loss mask"
                )
        yield batch.select([name for name in names if name != "edits"])


@step("shards")
class ShardsProduct(Product):
    """Encodes the corpus into token shards (docs/design/contracts.md, Token shards)."""

    makes: ClassVar[str] = "shards"
    resumes: ClassVar[str | None] = ".shards.partial/progress.json"
    needs: ClassVar[tuple[str, ...]] = ("tokenizer",)

    tokenizer: str | None = Field(
        None,
        description=(
            "Path of the tokenizer, a file or its folder. Without a value the tokenizer "
            "that the recipe trains."
        ),
    )
    pattern: str | None = Field(
        None,
        description="The pre-tokenisation pattern of a .tiktoken file, which does not hold it.",
    )
    shard_tokens: int = Field(100_000_000, ge=1, description="Tokens in each shard.")
    val_fraction: float = Field(
        0.0,
        ge=0,
        lt=1,
        description=(
            "Share of the documents, by the hash of their ids, that go into validation shards."
        ),
    )
    val_by: Literal["cluster", "id"] | None = Field(
        None,
        description=(
            "Whether near-duplicates are held out together (`cluster`) or every document for "
            "itself (`id`). Without a value by cluster where a MinHash dedup has left its "
            "index beside the corpus, else by id, with a warning."
        ),
    )
    shuffle: int | None = Field(
        None,
        ge=0,
        lt=1 << 64,
        description=(
            "Seed by which documents are shuffled. Without a value they stay in the order "
            "of the input."
        ),
    )
    sampling: float | None = Field(
        None,
        ge=0,
        description=(
            "Rate at which ids are drawn, not the usual ones taken: for byte-level BPE the "
            "probability with which a merge is dropped (Provilkov et al. 2020), for Unigram the "
            "power of the probabilities by which ways to spell are drawn (Kudo 2018). Without a "
            "value nothing is drawn."
        ),
    )
    sampling_seed: int = Field(
        0, ge=0, lt=1 << 64, description="Seed of `sampling`; draws go by it and the document's id."
    )
    packing: Literal["input", "neighbours"] = Field(
        "input",
        description=(
            "How documents lie in the shards: in the order of the `input`, or of `shuffle`; or "
            "as `neighbours`, each beside similar ones, so that rows of several documents are of "
            "one matter (Shi et al. 2024, in-context pretraining)."
        ),
    )
    bos: bool = Field(False, description="Put a begin-of-text token before every document.")
    eos: bool = Field(True, description="Put an end-of-text token after every document.")
    format: Literal["llmcurate", "megatron", "nanogpt", "olmo"] = Field(
        "llmcurate",
        description="Format of the shards: `llmcurate`, Megatron-LM's, modded-nanogpt's or OLMo's.",
    )
    loss_mask: str | None = Field(
        None,
        description=(
            "Column of the ranges of characters that count in the training loss. Without a "
            "value all tokens count."
        ),
    )

    @model_validator(mode="after")
    def _one_order(self) -> ShardsProduct:
        if self.packing != "input" and self.shuffle is not None:
            raise ValueError(f"packing: {self.packing} is an order of its own; leave shuffle out")
        return self

    def _tokenizer_file(self) -> Path:
        path = Path(self.tokenizer or "")
        return path / "tokenizer.json" if path.is_dir() else path

    def identity(self) -> Identity:
        identity = super().identity()
        digest = sha256(self._tokenizer_file()) if self.tokenizer else None
        identity.contents["tokenizer"] = digest
        return identity

    def _by_cluster(self, context: ProductContext) -> tuple[bool, list[str]]:
        """Return whether the split is by cluster, and what is to be said of it."""
        if not self.val_fraction or self.val_by is not None:
            return bool(self.val_fraction) and self.val_by == "cluster", []
        from curate.products.splits import has_index

        if has_index(context.run):
            return True, []
        return False, [
            "validation documents are drawn one by one, so that near-duplicates of them may be in"
            " training: --val-by cluster keeps these together (--val-by id: as it is, without this"
            " line)"
        ]

    def _keys(self, context: ProductContext, by_cluster: bool) -> Keys:
        """What documents are held out and ordered by, where it is not the hash of their ids."""
        from tokenize_kit.shards.writer import Keys

        sides = order = None
        if by_cluster:
            from curate.products.splits import find_clusters

            clusters = find_clusters(context.corpus, context.run, context.out)
            context.say(clusters.says)
            sides = clusters.draws
        if self.packing != "input":
            packed = index_of("curate")["packing"][self.packing].load()
            order, says = packed(context.corpus, context.out)
            context.say(says)
        return Keys(sides=sides, order=order)

    def build(self, context: ProductContext) -> dict[str, Any]:
        from tokenize_kit.shards.writer import Layout, encode_shards

        if self.tokenizer:
            path = self._tokenizer_file()
        elif "tokenizer" in context.inputs:
            path = context.inputs["tokenizer"] / "tokenizer.json"
            if not path.is_file():
                raise UsageError(
                    "shards: the recipe trains tokenizers of several sizes; name the one to use,"
                    " as tokenizer: OUT/32000, in a run of its own"
                )
        else:
            raise UsageError("shards: name a tokenizer, or train one before it in the recipe")
        by_cluster, warnings = self._by_cluster(context)
        others = {"tokenizer", "bos", "eos", "format", "val_by"}
        layout = Layout(
            append_eos=self.eos,
            prepend_bos=self.bos,
            val_by="cluster" if by_cluster else "id",
            form=self.format,
            **self.model_dump(exclude=others),
        )
        columns = ["id", "source", "lang", "text"]
        if self.loss_mask is not None:
            columns += [name for name in (self.loss_mask, "edits") if name not in columns]
        documents = context.corpus(columns)
        if self.loss_mask is not None:
            documents = _unchanged(documents, self.loss_mask)
        by = self._keys(context, by_cluster)
        manifest = encode_shards(
            documents, path, context.out, layout, context.workers, context.say, by=by
        )
        # Nothing continues shards of this stage that were begun under other settings.
        stage = glob.escape(context.out.name.rpartition("-")[0])
        for partial in context.out.parent.glob(f"{stage}-*/.shards.partial"):
            remove(partial, inside=context.out.parent)
        keys = (
            "documents",
            "tokens",
            "bytes",
            "dtype",
            "vocab_size",
            "format",
            "val",
            "val_by",
            "loss_tokens",
            "undrawn",
        )
        if undrawn := manifest.get("undrawn"):
            warnings.append(
                f"{counted(undrawn, 'document')} not drawn but encoded as without --sampling:"
                " `tokenizers` has to encode them (a normal form, or added tokens in the text)"
            )
        return {k: manifest[k] for k in keys if k in manifest} | {"warnings": warnings}

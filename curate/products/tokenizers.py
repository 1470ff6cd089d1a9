"""Tokenizers and token shards as recipe steps: their settings are passed to tokenize_kit."""

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
from llmcurate.base.roles import BESIDE
from tokenize_kit.learn.options import TrainingOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenize_kit.shards.writer import Keys

Function = TypeVar("Function", bound=Callable[..., Any])
Size = Annotated[int, Field(ge=2)]


def packing(name: str) -> Callable[[Function], Function]:
    """Mark a function as a way, called `name`, to order the documents in shards. The function gets
    the corpus and a temporary folder, and returns sort keys and a line about the result."""
    return lambda function: function


Vocab = Size | tuple[Size, ...]
_MOST_UNKNOWN = 0.001  # of the tokens, without a warning
_VOCAB = Field(
    32_000,
    description=(
        "Tokens of the vocabulary, including special and reserved ones. With several sizes, each"
        " has its own folder."
    ),
)


class _Learned(Product):
    vocab: Vocab = _VOCAB


if not TYPE_CHECKING:
    _Learned = with_settings(Product, TrainingOptions, sizes=("vocab", Vocab, _VOCAB))


@step("tokenizer")
class TokenizerProduct(_Learned):
    """Trains tokenizers on the corpus.

    Writes tokenizer.json, its card and card.html. For several sizes, writes a folder with these
    files for each size.
    """

    SECTIONS: ClassVar[dict[str, str]] = TrainingOptions.SECTIONS
    makes: ClassVar[str] = "tokenizer"

    @field_validator("vocab", mode="before")
    @classmethod
    def _sizes(cls, value: Any) -> Any:
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

    def forecast(self) -> list[str]:
        from tokenize_kit.learn.programs import opening_lines

        return opening_lines(self._options())

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
        records = [card.json() for card in cards]
        summary = {"card": records[0], "warnings": warnings, "stages": stages}
        return summary if len(cards) == 1 else summary | {"cards": records}


def _unchanged(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """Yield the documents without the column `edits`, which lists changes of the text by steps.
    Raise UsageError if the text of a document with ranges in `column` was changed: the ranges are
    positions in the original text."""
    import pyarrow.compute as pc

    for batch in batches:
        names = batch.schema.names
        if "edits" in names and column in names:
            changed = pc.fill_null(pc.list_value_length(batch["edits"]), 0)
            for row in pc.indices_nonzero(changed).to_pylist():
                value = batch[column][row].as_py()
                if value in (True, False, None, "true", "false", [], "[]"):
                    continue  # no ranges: the whole document counts, or nothing of it
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

    tokenizer: str | None = None
    """Path of the tokenizer, a file or its folder; by default the tokenizer that the recipe
    trains."""
    pattern: str | None = None
    """Pre-tokenisation pattern for a .tiktoken file, which does not include one."""
    shard_tokens: int = Field(100_000_000, ge=1)
    """Tokens in each shard."""
    val_fraction: float = Field(0.0, ge=0, lt=1)
    """Share of the documents in validation shards, drawn by the hash of their ids."""
    val_by: Literal["cluster", "id"] | None = None
    """Unit of the validation split: near-duplicates together (`cluster`) or single documents
    (`id`). The default is cluster if the corpus has the index of a MinHash dedup, else id with a
    warning."""
    shuffle: int | None = Field(None, ge=0, lt=1 << 64)
    """Seed of the shuffle of documents; by default they are in input order."""
    sampling: float | None = Field(None, ge=0, le=1)
    """Probability of dropping a merge of byte-level BPE (Provilkov et al. 2020). No merge is
    dropped by default."""
    sampling_seed: int = Field(0, ge=0, lt=1 << 64)
    """Seed of `sampling`, used with the document's id."""
    packing: Literal["input", "neighbours"] = "input"
    """Order of documents in the shards: `input`, the order of the input or of `shuffle`;
    `neighbours`, similar documents together, so that a row of several documents has one topic (Shi
    et al. 2024, in-context pretraining)."""
    bos: bool | None = None
    """Begin documents by a token. By default as the tokenizer begins texts."""
    eos: bool = True
    """Put an end-of-text token after every document."""
    bos_token: str | None = None
    """Begin-of-text token, if the tokenizer's files name none or another."""
    eos_token: str | None = None
    """End-of-text token, if the tokenizer's files name none or another."""
    format: Literal["llmcurate", "megatron", "nanogpt", "olmo"] = "llmcurate"
    """Format of the shards: `llmcurate`, Megatron-LM's, modded-nanogpt's or OLMo's."""
    loss_mask: str | None = None
    """Column with the ranges of characters that count in the training loss; by default all tokens
    count."""

    @model_validator(mode="after")
    def _one_order(self) -> ShardsProduct:
        if self.packing != "input" and self.shuffle is not None:
            raise ValueError(
                f"packing: {self.packing} sets the order of documents; leave shuffle out"
            )
        return self

    def _tokenizer_file(self) -> Path:
        from tokenize_kit.formats.forms import file_of

        return file_of(Path(self.tokenizer or ""))

    def identity(self) -> Identity:
        identity = super().identity()
        file = self._tokenizer_file() if self.tokenizer else None
        identity.contents["tokenizer"] = None if file is None else sha256(file)
        beside = [file.parent / name for name in (*BESIDE, "config.json")] if file else []
        identity.contents["beside"] = {f.name: sha256(f) for f in beside if f.is_file()}
        return identity

    def _by_cluster(self, context: ProductContext) -> tuple[bool, list[str]]:
        if not self.val_fraction or self.val_by is not None:
            return bool(self.val_fraction) and self.val_by == "cluster", []
        from curate.products.splits import minhash_indexes

        if minhash_indexes(context.run):
            return True, []
        return False, [
            "validation documents are drawn one by one, so training may contain near-duplicates of"
            " them: use --val-by cluster to keep these together, or --val-by id to hide this line"
        ]

    def _keys(self, context: ProductContext, by_cluster: bool) -> Keys:
        """Return the keys by which documents are held out and ordered. A field of Keys is None if
        hashes of ids are used. With `by_cluster`, near-duplicates are held out together."""
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
                    "shards: the recipe trains tokenizers of several sizes; encode in a separate"
                    " run and name one, as in tokenizer: OUT/32000"
                )
        else:
            raise UsageError(
                "shards: give a tokenizer, or train one in an earlier step of the recipe"
            )
        by_cluster, warnings = self._by_cluster(context)
        excluded = {"tokenizer", "bos", "eos", "format", "val_by"}
        layout = Layout(
            append_eos=self.eos,
            prepend_bos=self.bos,
            val_by="cluster" if by_cluster else "id",
            form=self.format,
            **self.model_dump(exclude=excluded),
        )
        columns = ["id", "source", "lang", "text"]
        if self.loss_mask is not None:
            columns += [name for name in (self.loss_mask, "edits") if name not in columns]
        documents = context.corpus(columns)
        if self.loss_mask is not None:
            documents = _unchanged(documents, self.loss_mask)
        by = self._keys(context, by_cluster)
        encoders: list[str] = []
        record = encoders.append
        manifest = encode_shards(
            documents, path, context.out, layout, context.workers, context.say, by=by, record=record
        )
        # Partial shards of other settings are of no use now.
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
            "unknown_tokens",
            "left_out",
        )
        if undrawn := manifest.get("undrawn"):
            warnings.append(
                f"{counted(undrawn, 'document')} encoded without --sampling, because they need"
                " `tokenizers` (a normal form, or added tokens in the text)"
            )
        left_out = manifest.get("left_out", 0)
        total = manifest["tokens"] + manifest.get("val", {}).get("tokens", 0) + left_out
        if (lost := manifest.get("unknown_tokens", 0) + left_out) > _MOST_UNKNOWN * total:
            what = "characters are left out" if left_out else "tokens are unknown"
            warnings.append(
                f"{lost:,} {what} ({lost / total:.1%}): {path.name} has no token for this text;"
                " train one on it, or use a tokenizer that spells unknown text in bytes"
            )
        own = {"encoder": encoders[0], "warnings": warnings}
        return {k: manifest[k] for k in keys if k in manifest} | own

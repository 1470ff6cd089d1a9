"""Settings of commands that run no step of a recipe: options and the reference are made of them."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from llmcurate.base.disk.yaml_file import read_counts
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

Class = TypeVar("Class", bound="CommandSettings")
_METHODS = "Methods, with commas between them; + joins those that run one after the other."


class CommandSettings(BaseModel):
    """The base of the settings of all commands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: ClassVar[str]  # the words that call it
    _counts = field_validator("*", mode="before")(read_counts)
    SECTIONS: ClassVar[dict[str, str]] = {}  # headings that settings open in help

    @classmethod
    def field(cls, name: str) -> Any:
        """A field of another command that means the same."""
        return copy(cls.model_fields[name])

    @classmethod
    def of(cls: type[Class], **options: Any) -> Class:
        """The settings from the options that were given; UsageError names the first mistake."""
        try:
            return cls(**options)
        except ValidationError as error:
            raise UsageError(problem(error, lambda name: f"--{name.replace('_', '-')}")) from None


class Forecast(CommandSettings):
    """The basis of the forecast that `--dry-run` prints."""

    command = "run"

    sample: Path | None = Field(
        None,
        description="With --dry-run: a run, over 1 % of the input for example, whose measurements"
        " the forecast is made from.",
    )
    as_if: str | None = Field(
        None,
        description="With --dry-run: size of the input to forecast, as 100TB, in place of IN.",
    )
    price: tuple[str, ...] = Field(
        (),
        description="With --dry-run: a price in USD, as KEY=USD. The keys are cpu_hour, put and get"
        " (for 1,000 of them) and gb_month; months is the number of months.",
    )


class Fetch(CommandSettings):
    """Files of the web or of an object store."""

    command = "fetch"

    base: str | None = Field(
        None, description="URL in front of the paths of a list: https://data.commoncrawl.org/."
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="Number of files or captures to fetch, the first ones; without a value all.",
    )
    rate: str | None = Field(None, description="Most bytes a second, all files together, as 5MB/s.")
    tries: int = Field(
        5, ge=1, description="A file is given up after this many tries in a row without a new byte."
    )
    parallel: int = Field(2, ge=1, le=64, description="Number of files fetched at a time.")
    timeout: float = Field(60.0, ge=0.1, description="Seconds that a server may be silent.")
    keep_paths: bool = Field(
        False, description="Files lie in folders by host and path, as in their URLs."
    )
    index: tuple[str, ...] = Field(
        (),
        description="Domain, host or URL whose captures a URL index lists; their records are"
        " fetched by range into WARC files.",
    )
    match: Literal["domain", "host", "prefix", "exact"] = Field(
        "domain",
        description="Captures of --index: of the domain and its subdomains, the host alone, URLs"
        " that begin so, or the URL itself.",
    )
    crawl: tuple[str, ...] = Field(
        (),
        description="Crawl whose index is asked, as CC-MAIN-2024-22. Without a value it is the"
        " newest.",
    )
    filter: tuple[str, ...] = Field(
        ("=status:200",),
        description="Condition on captures of --index, as the server has them: =status:200,"
        " ~mime:.*html, !~url:.*print.*.",
    )
    server: str = Field(
        "https://index.commoncrawl.org",
        description="URL of the CDX server that --index asks, one request at a time.",
    )


class Refresh(CommandSettings):
    """A corpus that grows."""

    command = "refresh"
    SECTIONS = {"list": "Input", "keep": "Snapshots", "logs": "Logs"}

    list: tuple[str, ...] = Field((), description="Files of inputs, one input a line.")
    base: str | None = Field(
        None, description="Folder or URL where the relative lines of lists begin."
    )
    changed: Literal["leave", "new", "skip"] = Field(
        "leave",
        description="What happens to inputs that changed since they came: left as they were and"
        " named, taken in as new ones, or left without a word.",
    )
    damaged: Literal["leave", "take"] = Field(
        "leave",
        description="What happens to inputs whose end cannot be read: left out until they are"
        " whole, or taken as far as they go.",
    )
    keep: int | None = Field(
        None, ge=1, description="Snapshots to keep; older ones are deleted. Without a value none."
    )
    keep_days: float | None = Field(
        None, ge=0, description="Days to keep snapshots; they are deleted then. Without it never."
    )
    rollback: str | None = Field(
        None, description="Snapshot that becomes the current one; `parent` is the one before."
    )
    rebuild: bool = Field(
        False, description="All inputs are taken again, as after a change of the recipe."
    )
    abandon: bool = Field(False, description="An unfinished refresh is given up before this one.")
    products: bool = Field(
        False, description="The recipe's products are made of the whole snapshot."
    )
    logs: Literal["text", "json"] = Field(
        "text", description="Form of the messages on stderr; json is one object a line."
    )
    metrics: Path | None = Field(
        None, description="File (.prom) that is written for Prometheus' textfile collector."
    )
    on_failure: str | None = Field(
        None,
        description="Command that sh runs on failure. LLMCURATE_ERROR and LLMCURATE_EXIT_CODE are"
        " set for it.",
    )
    webhook: str | None = Field(None, description="URL that receives JSON on failure.")


class Forget(CommandSettings):
    """Documents that are to leave a corpus."""

    command = "forget"

    url: tuple[str, ...] = Field((), description="URLs of pages.")
    domain: tuple[str, ...] = Field((), description="Domains, with all below them.")
    id: tuple[str, ...] = Field((), description="Ids of documents.")
    list: tuple[Path, ...] = Field(
        (), description="Files of lines `url URL`, `domain NAME`, `id ID`, or bare URLs."
    )
    purge: bool = Field(False, description="Snapshots that still hold them are removed.")


class ExtractEval(CommandSettings):
    """The evaluation of extractors."""

    command = "extract-eval"

    extractor: tuple[Literal["blocks", "resiliparse", "trafilatura", "justext", "text"], ...] = (
        Field(
            ("blocks",),
            min_length=1,
            description="An extractor to score: blocks, resiliparse, trafilatura, justext or text."
            " The others are set beside the first.",
        )
    )


class LanguageEvaluate(CommandSettings):
    """The measurement of a language model."""

    command = "language evaluate"

    label_column: str = Field("lang", description="Column that holds the labels.")
    max_chars: int = Field(
        0, ge=0, description="Number of characters that the model reads, the first ones; 0: all."
    )


class QualityTrain(CommandSettings):
    """The training of a quality classifier."""

    command = "quality train"

    preset: str = Field(
        "dclm", description="Published settings to start from: dclm, llama, gpt3 or openwebmath."
    )
    balance: bool = Field(
        False, description="As many documents of the larger set are taken as of the smaller."
    )
    documents: int = Field(
        0, ge=0, description="Most documents of each set, drawn by hash; 0: all documents."
    )
    held_out: float = Field(
        0.1, ge=0, le=0.9, description="Share of the texts, by hash, that the model is tested on."
    )
    word_ngrams: int | None = Field(
        None, ge=1, le=5, description="Words of the longest n-gram. Without a value the preset's."
    )
    dim: int | None = Field(
        None, ge=1, le=1000, description="Dimensions of the vectors. Without a value the preset's."
    )
    epochs: int | None = Field(
        None, ge=1, description="Passes over the texts. Without a value the preset's."
    )
    lr: float | None = Field(
        None, ge=0, description="Learning rate at the start. Without a value the preset's."
    )
    min_count: int | None = Field(
        None, ge=1, description="Least occurrences of a word. Without a value the preset's."
    )
    bucket: int | None = Field(
        None,
        ge=1,
        description="Rows that n-grams share; 2,000,000 take 800 MB. Without a value the preset's.",
    )
    quantize: bool = Field(
        False, description="The compressed form, quality.ftz, is written instead of quality.bin."
    )
    cutoff: int = Field(
        0, ge=0, description="Words and n-grams that a compressed model keeps; 0: all."
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the first weights.")


class PerplexityScore(CommandSettings):
    """The scoring of a text."""

    command = "perplexity score"

    by: Literal["line", "paragraph", "document"] = Field(
        "line", description="The part of the text that is scored as one."
    )


class PerplexityConvert(CommandSettings):
    """The conversion of an n-gram model."""

    command = "perplexity convert"

    variant: Literal["plain", "ccnet"] = Field(
        "plain",
        description="The text that the model reads: plain as it is written, ccnet in CCNet's"
        " normal form.",
    )
    unit: Literal["whitespace", "words"] = Field(
        "whitespace", description="Words of the model: what blanks separate, or Unicode's words."
    )
    pieces: Path | None = Field(
        None, description="SentencePiece model whose tokens are the words of the model."
    )


class Clusters(CommandSettings):
    """The clusters that are shown."""

    command = "dedup clusters"

    show: int = Field(20, ge=1, description="Number of clusters, the largest first.")
    method: str | None = Field(
        None, description="Method whose clusters are shown. Without a value those of all are."
    )
    min_size: int = Field(2, ge=1, description="Least number of members of a cluster.")
    members: int = Field(
        2, ge=0, le=100, description="Number of members shown beside the copy that stays."
    )


class DedupCompare(CommandSettings):
    """The comparison of dedup methods."""

    command = "dedup compare"

    methods: str = Field(
        "exact,minhash,exact+minhash",
        description=_METHODS,
    )
    tokenizer: Path | None = Field(
        None, description="tokenizer.json, or its folder, that tokens are counted with."
    )


class DedupEvaluate(CommandSettings):
    """The evaluation of dedup methods on planted copies."""

    command = "dedup evaluate"

    methods: str = Field(
        "exact,minhash,lines",
        description=_METHODS,
    )
    plant: int = Field(20, ge=1, le=10_000, description="Number of planted copies of each kind.")
    seed: int = Field(0, description="Seed of the sample and of the planted copies.")
    documents: int = Field(
        10_000, ge=1, description="Most documents that are drawn from the input."
    )


class DedupAudit(CommandSettings):
    """The audit of duplicates within and between training and validation text."""

    command = "dedup audit"

    val: tuple[str, ...] = Field((), description="Files or folders of validation text.")
    shards: Path | None = Field(
        None,
        description=(
            "Folder of token shards of the input, whose val/ says which documents are validation "
            "text."
        ),
    )
    similarity: float = Field(
        0.8,
        gt=0,
        lt=1,
        description="Jaccard similarity from which on documents are near-duplicates.",
    )
    tokenizer: Path | None = Field(
        None,
        description=(
            "tokenizer.json, or its folder: passages of 50 of its tokens are looked for (Lee et "
            "al. 2022). Without a value passages of 200 characters."
        ),
    )


class Hashes(CommandSettings):
    """The texts that hashes are measured on."""

    command = "dedup hashes"

    documents: int = Field(20_000, ge=1, le=1_000_000, description="Number of generated documents.")
    bytes: int = Field(2000, ge=1, le=4000, description="Bytes of each document.")


class Export(CommandSettings):
    """The form of an export."""

    command = "export"

    format: Literal["jsonl", "warc", "minhash", "bloom", "hf"] = Field(
        "jsonl",
        description="jsonl writes a corpus as JSON lines, warc as WARC records of plain text,"
        " minhash its signatures for datasketch, bloom a filter for pybloom-live; hf, the"
        " default of a folder with a trained model, writes it for transformers.",
    )
    compression: Literal["zst", "gz", "none"] = Field(
        "zst", description="Compression of the JSON lines."
    )
    attributes: bool = Field(
        False, description="Whether JSON lines have `attributes`: scores and edits."
    )
    key: Literal["url", "text"] = Field(
        "url", description="What a filter holds of the documents: their URLs or their texts."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the weights of a model."
    )
    checkpoint: Literal["best", "last"] = Field(
        "best",
        description="Checkpoint of a model: the one with the least held-out loss, or the last.",
    )


class Verify(CommandSettings):
    """The sample that is recomputed."""

    command = "verify"

    documents: int = Field(
        200, ge=1, le=100_000, description="Number of documents in the sample of each comparison."
    )
    seed: int = Field(0, ge=0, lt=2**64, description="Another seed draws another sample.")


class Push(CommandSettings):
    """What is pushed, and how it is open to others."""

    command = "push"

    kind: Literal["corpus", "model", "tokenizer", "shards"] | None = Field(
        None, description="What is pushed of a folder that is several of these; the first one else."
    )
    public: bool = Field(
        False, description="A new repository is open to everybody. Without it, to you alone."
    )
    license: str | None = Field(
        None, description="License of the repository, by the hub's name for it: cc-by-4.0, odc-by."
    )


class Browse(CommandSettings):
    """The page that is served, or written."""

    command = "browse"

    port: int = Field(8765, ge=0, le=65535, description="Port of the page; 0: any that is free.")
    static: Path | None = Field(
        None,
        description=(
            "File (.html) that a sample is written into, instead of serving; or a folder, for the"
            " sample and the report, whose ids lead there."
        ),
    )
    each: int = Field(10, ge=1, le=50, description="With --static: documents of each rule.")
    labels: Path | None = Field(
        None, description="File (JSONL) of your labels. The default is RUN/labels.jsonl."
    )
    export_labels: Path | None = Field(
        None,
        description=(
            "Folder that labelled documents are written into, good.jsonl and bad.jsonl, for"
            " `llmcurate quality train`, instead of serving."
        ),
    )


class Search(CommandSettings):
    """The occurrences that are shown."""

    command = "search"

    limit: int = Field(10, ge=0, description="Number of occurrences to show.")
    context: int = Field(60, ge=0, description="Bytes to show on either side of an occurrence.")


class TokenizerEval(CommandSettings):
    """The comparison of tokenizers."""

    command = "tokenizer eval"

    baseline: Path | None = Field(
        None, description="Tokenizer whose lengths the others' are given as shares of."
    )
    pattern: str | None = Field(
        None,
        description="How text is cut, for a .tiktoken file: gpt2, cl100k, o200k, llama3 or qwen2.",
    )
    dictionary: Path | None = Field(
        None, description="List of words, one a line, that cuts scripts without spaces into words."
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="What stands between words in the texts, as |. It is taken out before they are"
        " encoded.",
    )
    words: str | None = Field(
        None,
        description="Column with the words of each text: a list of them, or the text with white"
        " space between.",
    )
    morphemes: Path | None = Field(
        None,
        description="List of words: on each line a word, a tab, and its morphemes with spaces"
        " between.",
    )
    pivot: str | None = Field(
        None, description="Language whose tokens the others' are set against. The default is en."
    )
    price: float | None = Field(None, ge=0, description="Price of a million tokens.")
    context: int | None = Field(
        None, ge=1, description="Tokens of a context, to say how much text fits into it."
    )
    show: int = Field(
        0, ge=0, le=100, description="Number of texts, the first ones, that are shown cut."
    )
    color: bool | None = Field(
        None, description="Whether the output has colours. Without a value it does on a terminal."
    )


class TokenizerDiff(CommandSettings):
    """The difference of two tokenizers."""

    command = "tokenizer diff"

    pattern: str | None = TokenizerEval.field("pattern")
    dictionary: Path | None = TokenizerEval.field("dictionary")


class TokenizerStudy(CommandSettings):
    """The comparison of sizes of a vocabulary."""

    command = "tokenizer study"

    vocab: str = Field(
        "4000,8000,16000,32000,64000", description="Sizes to compare, with commas between them."
    )
    digits: str = Field(
        "single", description="How digits are cut: single, triples, triples-right or free."
    )
    dictionary: Path | None = TokenizerEval.field("dictionary")
    width: int = Field(768, ge=1, description="Width of the model's embedding.")
    worth: float = Field(
        0.03, ge=0, le=1, description="Least share of the tokens that a doubled vocabulary saves."
    )


class TokenizerExtend(CommandSettings):
    """The extension of a tokenizer."""

    command = "tokenizer extend"

    vocab: int | None = Field(
        None, ge=2, description="Most tokens of the new vocabulary, old ones included."
    )
    min_frequency: int = Field(
        2, ge=1, description="Least occurrences of a pair of tokens that is merged (BPE)."
    )
    init: Literal["mean", "focus", "random"] = Field(
        "mean",
        description="New rows of the embeddings: the mean of a token's old parts; a blend of tokens"
        " that stand in like contexts of the texts given (Dobler and de Melo 2023); or random as"
        " the old rows are.",
    )
    seed: int = Field(0, ge=0, description="Seed of the random rows.")
    scripts: str = Field(
        "",
        description="Scripts that the tokens of --from may hold, with commas between them; with a"
        " minus, as -Thai, those that they may not. Without a value all.",
    )


class TokenizerPrune(CommandSettings):
    """The pruning of a tokenizer."""

    command = "tokenizer prune"

    vocab: int | None = Field(
        None, ge=1, description="Tokens of the new vocabulary: those used most stay."
    )
    min_count: int | None = Field(
        None, ge=1, description="Least uses of a token that stays; 1 keeps all that are used."
    )

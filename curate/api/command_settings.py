"""Settings of the commands that run no step of a recipe. The options of these commands and their
reference pages are made from these classes."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from llmcurate.base.disk.yaml_file import read_counts
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import describe, problem

Class = TypeVar("Class", bound="CommandSettings")
_METHODS = "Methods, separated by commas. Join several with + to run them in turn."


class CommandSettings(BaseModel):
    """The base of the settings of all commands."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    command: ClassVar[str]  # as typed after `llmcurate`, given by each class
    _counts = field_validator("*", mode="before")(read_counts)
    SECTIONS: ClassVar[dict[str, str]] = {}  # {setting: heading in help that it starts}
    METAVARS: ClassVar[dict[str, str]] = {}  # {setting: what help shows for its value}

    def __init_subclass__(cls, command: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.command, cls.__doc__ = command, f"The options of `llmcurate {command}`."
        describe(cls)

    @classmethod
    def field(cls, name: str) -> Any:
        """Return a copy of the field `name`, for another command that has the same option."""
        return copy(cls.model_fields[name])

    @classmethod
    def of(cls: type[Class], **options: Any) -> Class:
        """Return the settings made from `options`. Raise UsageError, which names the first option
        that is not valid."""
        try:
            return cls(**options)
        except ValidationError as error:
            raise UsageError(problem(error, lambda name: f"--{name.replace('_', '-')}")) from None


class Forecast(CommandSettings, command="run"):
    sample: Path | None = None
    """With --dry-run: a run to base the forecast on, for example over 1 % of the input."""
    as_if: str | None = None
    """With --dry-run: forecast for an input of this size, such as 100TB, instead of IN."""
    price: tuple[str, ...] = ()
    """With --dry-run: a price in USD, as KEY=USD. The keys are cpu_hour, put and get (per 1,000
    requests) and gb_month; months=N sets the number of months."""


class Fetch(CommandSettings, command="fetch"):
    base: str | None = None
    """URL to prepend to paths in a list: https://data.commoncrawl.org/."""
    limit: int | None = Field(None, ge=1)
    """Number of files or captures to fetch, from the first on. Default: all."""
    rate: str | None = None
    """Highest total download rate, such as 5MB/s."""
    tries: int = Field(5, ge=1)
    """Give up on a file after this many tries in a row without a new byte."""
    parallel: int = Field(2, ge=1, le=64)
    """Number of files to fetch at the same time."""
    timeout: float = Field(60.0, ge=0.1)
    """Seconds to wait for a server that sends nothing."""
    keep_paths: bool = False
    """Store files in folders by the host and path of their URLs."""
    index: tuple[str, ...] = ()
    """Domain, host or URL to look up in a URL index. Its captures are fetched as byte ranges and
    written to WARC files."""
    match: Literal["domain", "host", "prefix", "exact"] = "domain"
    """What --index names: a domain with its subdomains, a host, a prefix of URLs, or one exact
    URL."""
    crawl: tuple[str, ...] = ()
    """Crawl whose index to query, such as CC-MAIN-2024-22. Default: the newest."""
    filter: tuple[str, ...] = ("=status:200",)
    """Condition on the captures of --index, in the server's syntax: =status:200, ~mime:.*html,
    !~url:.*print.*."""
    server: str = "https://index.commoncrawl.org"
    """URL of the CDX server for --index. It gets one request at a time."""


class Refresh(CommandSettings, command="refresh"):
    SECTIONS = {"list": "Input", "keep": "Snapshots", "logs": "Logs"}

    list: tuple[str, ...] = ()
    """File that lists inputs, one per line."""
    base: str | None = None
    """Folder or URL to prepend to relative paths in --list."""
    changed: Literal["leave", "new", "skip"] = "leave"
    """What to do with inputs that changed since they were read: leave them out and name them, read
    them as new inputs, or skip them silently."""
    damaged: Literal["leave", "take"] = "leave"
    """What to do with truncated inputs: leave them out until they are whole, or read them as far as
    possible."""
    keep: int | None = Field(None, ge=1)
    """Number of snapshots to keep; older ones are deleted. Default: keep all."""
    rollback: str | None = None
    """Make this snapshot the current one; `parent` is the previous one."""
    rebuild: bool = False
    """Read all inputs again, for example after a change of the recipe."""
    abandon: bool = False
    """First discard an unfinished refresh."""
    products: bool = False
    """Also build the recipe's products from the whole snapshot."""
    logs: Literal["text", "json"] = "text"
    """Format of the messages on stderr; json writes one object per line."""
    metrics: Path | None = None
    """Metrics file (.prom) to write for Prometheus' textfile collector."""
    on_failure: str | None = None
    """Shell command to run on failure. It gets LLMCURATE_ERROR and LLMCURATE_EXIT_CODE."""


class Forget(CommandSettings, command="forget"):
    url: tuple[str, ...] = ()
    """URL of a page."""
    domain: tuple[str, ...] = ()
    """Domain, with its subdomains."""
    id: tuple[str, ...] = ()
    """Id of a document."""
    list: tuple[Path, ...] = ()
    """File with lines `url URL`, `domain NAME`, `id ID`, or plain URLs."""
    purge: bool = False
    """Delete older snapshots, which still contain them."""


class ExtractEval(CommandSettings, command="extract-eval"):
    extractor: tuple[Literal["blocks", "resiliparse", "trafilatura", "justext", "text"], ...] = (
        Field(("blocks",), min_length=1)
    )
    """Extractor to score: blocks, resiliparse, trafilatura, justext or text. The others are
    compared with the first."""


class LanguageEvaluate(CommandSettings, command="language evaluate"):
    label_column: str = "lang"
    """Column with the labels."""
    max_chars: int = Field(0, ge=0)
    """Characters to read from the beginning of a document; 0: all."""


class QualityTrain(CommandSettings, command="quality train"):
    METAVARS = dict.fromkeys(("positive", "negative", "labels"), "IN")

    positive: tuple[str, ...] = ()
    """Good documents."""
    negative: tuple[str, ...] = ()
    """Ordinary documents."""
    labels: tuple[str, ...] = ()
    """Documents with a column `score`."""
    preset: str = "dclm"
    """Published settings to start from: dclm, llama, gpt3 or openwebmath."""
    balance: bool = False
    """Reduce the larger set to the size of the smaller."""
    documents: int = Field(0, ge=0)
    """Maximum documents per set, sampled by hash; 0: all."""
    held_out: float = Field(0.1, ge=0, le=0.9)
    """Share of the documents held out for testing, by hash."""
    word_ngrams: int | None = Field(None, ge=1, le=5)
    """Words in the longest n-gram. Default: the preset's."""
    dim: int | None = Field(None, ge=1, le=1000)
    """Dimensions of the vectors. Default: the preset's."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the documents. Default: the preset's."""
    lr: float | None = Field(None, ge=0)
    """Initial learning rate. Default: the preset's."""
    min_count: int | None = Field(None, ge=1)
    """Minimum occurrences of a word. Default: the preset's."""
    bucket: int | None = Field(None, ge=1)
    """Hash buckets of n-grams; 2,000,000 take 800 MB. Default: the preset's."""
    quantize: bool = False
    """Write a compressed model, quality.ftz, instead of quality.bin."""
    cutoff: int = Field(0, ge=0)
    """Number of words and n-grams in a compressed model; 0: all."""
    seed: int = Field(0, ge=0, le=2**31 - 1)
    """Seed of the initial weights."""
    from_score: float = 3
    """With --labels: lowest score of a good document (FineWeb-Edu: 3)."""


class QualityLabel(CommandSettings, command="quality label"):
    endpoint: str
    """URL of the server, such as http://localhost:8000/v1."""
    model: str = Field(min_length=1)
    """Name of the model, as the server calls it."""
    prompt: str = "fineweb-edu"
    """fineweb-edu, dclm, or a file with {text} for the document."""
    max_tokens: int = Field(512, ge=1)
    """Maximum tokens per answer (FinePDFs: 512)."""
    extra: str = "{}"
    """JSON object with further fields for requests; null removes a field."""
    key_env: str | None = None
    """Environment variable with the API key. Default: OPENAI_API_KEY, which is sent only over https
    or to this machine."""
    sample: int = Field(1000, ge=1)
    """Documents to label, chosen by hash of their ids."""
    seed: int = 0
    """Seed of the sample."""
    max_chars: int = Field(8000, ge=1)
    """Characters to read from a text's beginning."""
    parallel: int = Field(8, ge=1, le=256)
    """Number of requests at the same time."""
    tries: int = Field(5, ge=1)
    """Give up on a request after this many tries."""
    timeout: float = Field(120.0, ge=0.1)
    """Seconds to wait for a silent server."""
    price_in: float = Field(0, ge=0)
    """USD per million tokens of requests."""
    price_out: float = Field(0, ge=0)
    """USD per million tokens of answers."""


class PerplexityScore(CommandSettings, command="perplexity score"):
    by: Literal["line", "paragraph", "document"] = "line"
    """Unit of text to score."""


class PerplexityConvert(CommandSettings, command="perplexity convert"):
    variant: Literal["plain", "ccnet"] = "plain"
    """Normalization of the text before scoring: plain for none, ccnet for CCNet's."""
    unit: Literal["whitespace", "words"] = "whitespace"
    """Words of the model: separated by whitespace, or Unicode words."""
    pieces: Path | None = None
    """SentencePiece model whose tokens are the words of the model."""


class Clusters(CommandSettings, command="dedup clusters"):
    show: int = Field(20, ge=1)
    """Number of clusters to show, the largest first."""
    method: str | None = None
    """Show only the clusters of this method. Default: all methods."""
    min_size: int = Field(2, ge=1)
    """Smallest cluster to show, in documents."""
    members: int = Field(2, ge=0, le=100)
    """Number of duplicates to show next to the kept document."""


class DedupCompare(CommandSettings, command="dedup compare"):
    methods: str = Field("exact,minhash,exact+minhash", description=_METHODS)
    tokenizer: Path | None = None
    """Tokenizer to count tokens with: tokenizer.json or its folder."""


class DedupAudit(CommandSettings, command="dedup audit"):
    val: tuple[str, ...] = ()
    """Files or folders of validation text."""
    shards: Path | None = None
    """Token shards of the input; the documents in their val/ are the validation text."""
    similarity: float = Field(0.8, gt=0, lt=1)
    """Lowest Jaccard similarity of two documents that are near duplicates."""
    tokenizer: Path | None = None
    """Tokenizer (tokenizer.json or its folder) to look for repeated passages of 50 tokens (Lee et
    al. 2022). Default: passages of 200 characters."""


class Export(CommandSettings, command="export"):
    format: Literal["jsonl", "warc", "minhash", "bloom", "hf", "gguf", "onnx"] = "jsonl"
    """Format of a corpus: jsonl, warc (records of plain text), minhash (signatures for datasketch)
    or bloom (a filter for pybloom-live). Format of a model: hf (transformers; the default for a
    trained model), gguf (llama.cpp) or onnx (encoders)."""
    compression: Literal["zst", "gz", "none"] = "zst"
    """Compression of the JSONL files."""
    attributes: bool = False
    """Include `attributes` (scores and edits) in JSONL."""
    key: Literal["url", "text"] = "url"
    """Keys in the Bloom filter: the URLs or the texts of the documents."""
    dtype: Literal["float32", "float16", "bfloat16", "q8_0"] = "float32"
    """Data type of a model's weights; q8_0 (8 bits, in blocks of 32) is for gguf."""
    checkpoint: Literal["best", "last"] = "best"
    """Checkpoint to use: the one with the lowest held-out loss, or the last."""


class Verify(CommandSettings, command="verify"):
    documents: int = Field(200, ge=1, le=100_000)
    """Number of documents to recompute per comparison."""
    seed: int = Field(0, ge=0, lt=2**64)
    """Seed of the sample."""


class Browse(CommandSettings, command="browse"):
    port: int = Field(8765, ge=0, le=65535)
    """Port of the server; 0: any free port."""
    labels: Path | None = None
    """File (JSONL) for your labels. Default: RUN/labels.jsonl."""
    export_labels: Path | None = None
    """Write the labelled documents to this folder as good.jsonl and bad.jsonl for `llmcurate
    quality train`, instead of serving."""


class Search(CommandSettings, command="search"):
    longest: str | None = None
    """Show the longest passage that this text shares with the corpus."""
    file: Path | None = None
    """Show the longest passage that this file shares with the corpus."""
    limit: int = Field(10, ge=0)
    """Number of occurrences to show."""
    context: int = Field(60, ge=0)
    """Bytes to show before and after an occurrence."""


class TokenizerEval(CommandSettings, command="tokenizer eval"):
    baseline: Path | None = None
    """Tokenizer that the others are compared with, by number of tokens."""
    pattern: str | None = None
    """For a .tiktoken file: how text is split, such as gpt2, cl100k, o200k, llama3 or qwen2; any
    other name lists all."""
    dictionary: Path | None = None
    """List of words, one per line, to find words in scripts without spaces."""
    separator: str | None = Field(None, min_length=1)
    """Separator between words in the texts, such as |. It is removed before encoding."""
    words: str | None = None
    """Column with the words of each text: a list, or a string with spaces between words."""
    pivot: str | None = None
    """Language that the others are compared with. Default: en."""
    price: float | None = Field(None, ge=0)
    """Price per million tokens."""
    context: int | None = Field(None, ge=1)
    """Context length in tokens, to show how much text fits into it."""
    show: int = Field(0, ge=0, le=100)
    """Number of texts, from the first on, whose tokens are shown."""


class TokenizerConvert(CommandSettings, command="tokenizer convert"):
    METAVARS = {"to": "FORMAT", "on": "DATA"}

    to: str
    """New format: tokenizer.json, sentencepiece, tiktoken or gguf."""
    pattern: str | None = TokenizerEval.field("pattern")
    on: tuple[str, ...] = ()
    """Texts whose ids must not change. Default: a set of hard cases."""
    bos_token: str | None = None
    """Token that begins a text, if no file names it."""
    eos_token: str | None = None
    """Token that ends a text, if no file names it."""
    allow_loss: bool = False
    """Convert without features that FORMAT cannot hold."""


class TokenizerStudy(CommandSettings, command="tokenizer study"):
    vocab: str = "4000,8000,16000,32000,64000"
    """Vocabulary sizes, separated by commas."""
    digits: str = "single"
    """How digits are split: single, triples, triples-right or free."""
    dictionary: Path | None = TokenizerEval.field("dictionary")
    width: int = Field(768, ge=1)
    """Width of the model's embedding."""
    worth: float = Field(0.03, ge=0, le=1)
    """Smallest share of tokens saved that is worth a doubled vocabulary."""


class TokenizerExtend(CommandSettings, command="tokenizer extend"):
    METAVARS = {"on": "CORPUS", "embeddings": "CHECKPOINT"}

    on: tuple[str, ...] = ()
    """Texts to learn from and to measure on; with --from only to measure."""
    embeddings: Path | None = None
    """safetensors file whose embeddings to change too."""
    tensor: tuple[str, ...] = ()
    """Name of the input embeddings if unusual, then of the output ones."""
    vocab: int | None = Field(None, ge=2)
    """Largest size of the new vocabulary, including the old tokens."""
    min_frequency: int = Field(2, ge=1)
    """Minimum occurrences of a pair of tokens to merge it (BPE)."""
    init: Literal["mean", "focus"] = "mean"
    """How new rows of the embeddings start: as the mean of the old tokens that spell the new one,
    or as a blend of tokens with similar contexts in the texts (Dobler and de Melo 2023)."""
    scripts: str = ""
    """Scripts allowed in the tokens of --from, separated by commas; with a minus, such as -Thai,
    scripts that are not. Default: all."""


class TokenizerPrune(CommandSettings, command="tokenizer prune"):
    METAVARS = TokenizerExtend.METAVARS

    on: tuple[str, ...] = ()
    """Texts to count on."""
    embeddings: Path | None = TokenizerExtend.field("embeddings")
    tensor: tuple[str, ...] = TokenizerExtend.field("tensor")
    vocab: int | None = Field(None, ge=1)
    """Size of the new vocabulary; the most used tokens are kept."""
    min_count: int | None = Field(None, ge=1)
    """Minimum uses of a token to keep it; 1 keeps every used token."""

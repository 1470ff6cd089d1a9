"""Settings of the commands that run no step of a recipe. The options of these commands and their
reference pages are made from these classes."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from llmcurate.base.disk.yaml_file import read_counts
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

Class = TypeVar("Class", bound="CommandSettings")
_METHODS = "Methods, separated by commas. Join several with + to run them in turn."


class CommandSettings(BaseModel):
    """The base of the settings of all commands."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    command: ClassVar[str]  # as typed after `llmcurate`
    _counts = field_validator("*", mode="before")(read_counts)
    SECTIONS: ClassVar[dict[str, str]] = {}  # {setting: heading in help that it starts}

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


class Forecast(CommandSettings):
    """The options of the forecast of time, space and cost that `--dry-run` prints."""

    command = "run"

    sample: Path | None = Field(
        None,
        description="With --dry-run: a run to base the forecast on, for example over 1 % of the"
        " input.",
    )
    as_if: str | None = Field(
        None,
        description="With --dry-run: forecast for an input of this size, such as 100TB, instead of"
        " IN.",
    )
    price: tuple[str, ...] = Field(
        (),
        description="With --dry-run: a price in USD, as KEY=USD. The keys are cpu_hour, put and get"
        " (per 1,000 requests) and gb_month; months=N sets the number of months.",
    )


class Fetch(CommandSettings):
    """The options of `llmcurate fetch`: files of the web or of an object store."""

    command = "fetch"

    base: str | None = Field(
        None, description="URL to prepend to paths in a list: https://data.commoncrawl.org/."
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="Number of files or captures to fetch, from the first on. Default: all.",
    )
    rate: str | None = Field(None, description="Highest total download rate, such as 5MB/s.")
    tries: int = Field(
        5, ge=1, description="Give up on a file after this many tries in a row without a new byte."
    )
    parallel: int = Field(2, ge=1, le=64, description="Number of files to fetch at the same time.")
    timeout: float = Field(
        60.0, ge=0.1, description="Seconds to wait for a server that sends nothing."
    )
    keep_paths: bool = Field(
        False, description="Store files in folders by the host and path of their URLs."
    )
    index: tuple[str, ...] = Field(
        (),
        description="Domain, host or URL to look up in a URL index. Its captures are fetched"
        " as byte ranges and written to WARC files.",
    )
    match: Literal["domain", "host", "prefix", "exact"] = Field(
        "domain",
        description="What --index names: a domain with its subdomains, a host, a prefix of URLs, or"
        " one exact URL.",
    )
    crawl: tuple[str, ...] = Field(
        (), description="Crawl whose index to query, such as CC-MAIN-2024-22. Default: the newest."
    )
    filter: tuple[str, ...] = Field(
        ("=status:200",),
        description="Condition on the captures of --index, in the server's syntax: =status:200,"
        " ~mime:.*html, !~url:.*print.*.",
    )
    server: str = Field(
        "https://index.commoncrawl.org",
        description="URL of the CDX server for --index. It gets one request at a time.",
    )


class Refresh(CommandSettings):
    """The options of `llmcurate refresh`, which adds new input to a corpus."""

    command = "refresh"
    SECTIONS = {"list": "Input", "keep": "Snapshots", "logs": "Logs"}

    list: tuple[str, ...] = Field((), description="File that lists inputs, one per line.")
    base: str | None = Field(
        None, description="Folder or URL to prepend to relative paths in --list."
    )
    changed: Literal["leave", "new", "skip"] = Field(
        "leave",
        description="What to do with inputs that changed since they were read: leave them out and"
        " name them, read them as new inputs, or skip them silently.",
    )
    damaged: Literal["leave", "take"] = Field(
        "leave",
        description="What to do with truncated inputs: leave them out until they are whole, or read"
        " them as far as possible.",
    )
    keep: int | None = Field(
        None,
        ge=1,
        description="Number of snapshots to keep; older ones are deleted. Default: keep all.",
    )
    keep_days: float | None = Field(
        None, ge=0, description="Days after which snapshots are deleted. Default: never."
    )
    rollback: str | None = Field(
        None, description="Make this snapshot the current one; `parent` is the previous one."
    )
    rebuild: bool = Field(
        False, description="Read all inputs again, for example after a change of the recipe."
    )
    abandon: bool = Field(False, description="First discard an unfinished refresh.")
    products: bool = Field(
        False, description="Also build the recipe's products from the whole snapshot."
    )
    logs: Literal["text", "json"] = Field(
        "text", description="Format of the messages on stderr; json writes one object per line."
    )
    metrics: Path | None = Field(
        None, description="Metrics file (.prom) to write for Prometheus' textfile collector."
    )
    on_failure: str | None = Field(
        None,
        description="Shell command to run on failure. It gets LLMCURATE_ERROR and"
        " LLMCURATE_EXIT_CODE.",
    )
    webhook: str | None = Field(None, description="URL to send JSON to on failure.")


class Forget(CommandSettings):
    """The options of `llmcurate forget`: the documents to remove from a corpus."""

    command = "forget"

    url: tuple[str, ...] = Field((), description="URL of a page.")
    domain: tuple[str, ...] = Field((), description="Domain, with its subdomains.")
    id: tuple[str, ...] = Field((), description="Id of a document.")
    list: tuple[Path, ...] = Field(
        (), description="File with lines `url URL`, `domain NAME`, `id ID`, or plain URLs."
    )
    purge: bool = Field(False, description="Delete older snapshots, which still contain them.")


class ExtractEval(CommandSettings):
    """The options of `llmcurate extract-eval`, which scores extractors."""

    command = "extract-eval"

    extractor: tuple[Literal["blocks", "resiliparse", "trafilatura", "justext", "text"], ...] = (
        Field(
            ("blocks",),
            min_length=1,
            description="Extractor to score: blocks, resiliparse, trafilatura, justext or text. The"
            " others are compared with the first.",
        )
    )


class LanguageEvaluate(CommandSettings):
    """The options of `llmcurate language evaluate`."""

    command = "language evaluate"

    label_column: str = Field("lang", description="Column with the labels.")
    max_chars: int = Field(
        0, ge=0, description="Characters to read from the beginning of a document; 0: all."
    )


class QualityTrain(CommandSettings):
    """The options of `llmcurate quality train`."""

    command = "quality train"

    preset: str = Field(
        "dclm", description="Published settings to start from: dclm, llama, gpt3 or openwebmath."
    )
    balance: bool = Field(False, description="Reduce the larger set to the size of the smaller.")
    documents: int = Field(
        0, ge=0, description="Maximum documents per set, sampled by hash; 0: all."
    )
    held_out: float = Field(
        0.1, ge=0, le=0.9, description="Share of the documents held out for testing, by hash."
    )
    word_ngrams: int | None = Field(
        None, ge=1, le=5, description="Words in the longest n-gram. Default: the preset's."
    )
    dim: int | None = Field(
        None, ge=1, le=1000, description="Dimensions of the vectors. Default: the preset's."
    )
    epochs: int | None = Field(
        None, ge=1, description="Passes over the documents. Default: the preset's."
    )
    lr: float | None = Field(
        None, ge=0, description="Initial learning rate. Default: the preset's."
    )
    min_count: int | None = Field(
        None, ge=1, description="Minimum occurrences of a word. Default: the preset's."
    )
    bucket: int | None = Field(
        None,
        ge=1,
        description="Hash buckets of n-grams; 2,000,000 take 800 MB. Default: the preset's.",
    )
    quantize: bool = Field(
        False, description="Write a compressed model, quality.ftz, instead of quality.bin."
    )
    cutoff: int = Field(
        0, ge=0, description="Number of words and n-grams in a compressed model; 0: all."
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the initial weights.")
    from_score: float = Field(
        3, description="With --labels: lowest score of a good document (FineWeb-Edu: 3)."
    )


class QualityLabel(CommandSettings):
    """The options of `llmcurate quality label`, which asks a language model for scores."""

    command = "quality label"

    endpoint: str = Field(description="URL of the server, such as http://localhost:8000/v1.")
    model: str = Field(min_length=1, description="Name of the model, as the server calls it.")
    prompt: str = Field(
        "fineweb-edu", description="fineweb-edu, dclm, or a file with {text} for the document."
    )
    max_tokens: int = Field(512, ge=1, description="Maximum tokens per answer (FinePDFs: 512).")
    extra: str = Field(
        "{}", description="JSON object with further fields for requests; null removes a field."
    )
    key_env: str | None = Field(
        None,
        description="Environment variable with the API key. Default: OPENAI_API_KEY, which is sent"
        " only over https or to this machine.",
    )
    sample: int = Field(1000, ge=1, description="Documents to label, chosen by hash of their ids.")
    seed: int = Field(0, description="Seed of the sample.")
    max_chars: int = Field(8000, ge=1, description="Characters to read from a text's beginning.")
    parallel: int = Field(8, ge=1, le=256, description="Number of requests at the same time.")
    tries: int = Field(5, ge=1, description="Give up on a request after this many tries.")
    timeout: float = Field(120.0, ge=0.1, description="Seconds to wait for a silent server.")
    price_in: float = Field(0, ge=0, description="USD per million tokens of requests.")
    price_out: float = Field(0, ge=0, description="USD per million tokens of answers.")


class PerplexityScore(CommandSettings):
    """The options of `llmcurate perplexity score`."""

    command = "perplexity score"

    by: Literal["line", "paragraph", "document"] = Field(
        "line", description="Unit of text to score."
    )


class PerplexityConvert(CommandSettings):
    """The options of `llmcurate perplexity convert`."""

    command = "perplexity convert"

    variant: Literal["plain", "ccnet"] = Field(
        "plain",
        description="Normalization of the text before scoring: plain for none, ccnet for CCNet's.",
    )
    unit: Literal["whitespace", "words"] = Field(
        "whitespace", description="Words of the model: separated by whitespace, or Unicode words."
    )
    pieces: Path | None = Field(
        None, description="SentencePiece model whose tokens are the words of the model."
    )


class Clusters(CommandSettings):
    """The options of `llmcurate dedup clusters`."""

    command = "dedup clusters"

    show: int = Field(20, ge=1, description="Number of clusters to show, the largest first.")
    method: str | None = Field(
        None, description="Show only the clusters of this method. Default: all methods."
    )
    min_size: int = Field(2, ge=1, description="Smallest cluster to show, in documents.")
    members: int = Field(
        2, ge=0, le=100, description="Number of duplicates to show next to the kept document."
    )


class DedupCompare(CommandSettings):
    """The options of `llmcurate dedup compare`."""

    command = "dedup compare"

    methods: str = Field("exact,minhash,exact+minhash", description=_METHODS)
    tokenizer: Path | None = Field(
        None, description="Tokenizer to count tokens with: tokenizer.json or its folder."
    )


class DedupEvaluate(CommandSettings):
    """The options of `llmcurate dedup evaluate`, which plants duplicates and looks for them."""

    command = "dedup evaluate"

    methods: str = Field("exact,minhash,lines", description=_METHODS)
    plant: int = Field(20, ge=1, le=10_000, description="Number of duplicates to plant, per kind.")
    seed: int = Field(0, description="Seed of the sample and of the planted duplicates.")
    documents: int = Field(10_000, ge=1, description="Most documents to sample from the input.")


class DedupAudit(CommandSettings):
    """The options of `llmcurate dedup audit`: duplicates in training and validation text."""

    command = "dedup audit"

    val: tuple[str, ...] = Field((), description="Files or folders of validation text.")
    shards: Path | None = Field(
        None,
        description="Token shards of the input; the documents in their val/ are the validation"
        " text.",
    )
    similarity: float = Field(
        0.8,
        gt=0,
        lt=1,
        description="Lowest Jaccard similarity of two documents that are near duplicates.",
    )
    tokenizer: Path | None = Field(
        None,
        description="Tokenizer (tokenizer.json or its folder) to look for repeated passages of 50"
        " tokens (Lee et al. 2022). Default: passages of 200 characters.",
    )


class Hashes(CommandSettings):
    """The options of `llmcurate dedup hashes`, which times hash functions on generated texts."""

    command = "dedup hashes"

    documents: int = Field(20_000, ge=1, le=1_000_000, description="Number of generated documents.")
    bytes: int = Field(2000, ge=1, le=4000, description="Size of each document in bytes.")


class Export(CommandSettings):
    """The options of `llmcurate export`."""

    command = "export"

    format: Literal["jsonl", "warc", "minhash", "bloom", "hf", "gguf", "onnx"] = Field(
        "jsonl",
        description="Format of a corpus: jsonl, warc (records of plain text), minhash (signatures"
        " for datasketch) or bloom (a filter for pybloom-live). Format of a model: hf"
        " (transformers; the default for a trained model), gguf (llama.cpp) or onnx (encoders).",
    )
    compression: Literal["zst", "gz", "none"] = Field(
        "zst", description="Compression of the JSONL files."
    )
    attributes: bool = Field(False, description="Include `attributes` (scores and edits) in JSONL.")
    key: Literal["url", "text"] = Field(
        "url", description="Keys in the Bloom filter: the URLs or the texts of the documents."
    )
    dtype: Literal["float32", "float16", "bfloat16", "q8_0"] = Field(
        "float32",
        description="Data type of a model's weights; q8_0 (8 bits, in blocks of 32) is for gguf.",
    )
    checkpoint: Literal["best", "last"] = Field(
        "best", description="Checkpoint to use: the one with the lowest held-out loss, or the last."
    )


class Verify(CommandSettings):
    """The options of `llmcurate verify`, which recomputes a sample of a run's results."""

    command = "verify"

    documents: int = Field(
        200, ge=1, le=100_000, description="Number of documents to recompute per comparison."
    )
    seed: int = Field(0, ge=0, lt=2**64, description="Seed of the sample.")


class Push(CommandSettings):
    """The options of `llmcurate push`."""

    command = "push"

    kind: Literal["corpus", "model", "tokenizer", "shards"] | None = Field(
        None, description="Kind of content to push if the folder has several. Default: the first."
    )
    public: bool = Field(
        False, description="Make a new repository public. By default it is private."
    )
    license: str | None = Field(
        None, description="License of the repository, by its name on the hub: cc-by-4.0, odc-by."
    )


class Browse(CommandSettings):
    """The options of `llmcurate browse`."""

    command = "browse"

    port: int = Field(8765, ge=0, le=65535, description="Port of the server; 0: any free port.")
    static: Path | None = Field(
        None,
        description="Start no server: write a sample to this .html file, or to this folder with a"
        " report that links to the sample.",
    )
    each: int = Field(10, ge=1, le=50, description="With --static: documents per rule.")
    labels: Path | None = Field(
        None, description="File (JSONL) for your labels. Default: RUN/labels.jsonl."
    )
    export_labels: Path | None = Field(
        None,
        description="Write the labelled documents to this folder as good.jsonl and bad.jsonl for"
        " `llmcurate quality train`, instead of serving.",
    )


class Search(CommandSettings):
    """The options of `llmcurate search`."""

    command = "search"

    limit: int = Field(10, ge=0, description="Number of occurrences to show.")
    context: int = Field(60, ge=0, description="Bytes to show before and after an occurrence.")


class TokenizerEval(CommandSettings):
    """The options of `llmcurate tokenizer eval`."""

    command = "tokenizer eval"

    baseline: Path | None = Field(
        None, description="Tokenizer that the others are compared with, by number of tokens."
    )
    pattern: str | None = Field(
        None,
        description="For a .tiktoken file: how text is split, such as gpt2, cl100k, o200k, llama3"
        " or qwen2; any other name lists all.",
    )
    dictionary: Path | None = Field(
        None, description="List of words, one per line, to find words in scripts without spaces."
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="Separator between words in the texts, such as |. It is removed before"
        " encoding.",
    )
    words: str | None = Field(
        None,
        description="Column with the words of each text: a list, or a string with spaces between"
        " words.",
    )
    morphemes: Path | None = Field(
        None,
        description="List of words: per line a word, a tab, and its morphemes separated by spaces.",
    )
    pivot: str | None = Field(
        None, description="Language that the others are compared with. Default: en."
    )
    price: float | None = Field(None, ge=0, description="Price per million tokens.")
    context: int | None = Field(
        None, ge=1, description="Context length in tokens, to show how much text fits into it."
    )
    show: int = Field(
        0, ge=0, le=100, description="Number of texts, from the first on, whose tokens are shown."
    )
    color: bool | None = Field(None, description="Print colours. Default: on a terminal only.")


class TokenizerDiff(CommandSettings):
    """The options of `llmcurate tokenizer diff`."""

    command = "tokenizer diff"

    pattern: str | None = TokenizerEval.field("pattern")
    dictionary: Path | None = TokenizerEval.field("dictionary")


class TokenizerStudy(CommandSettings):
    """The options of `llmcurate tokenizer study`."""

    command = "tokenizer study"

    vocab: str = Field(
        "4000,8000,16000,32000,64000", description="Vocabulary sizes, separated by commas."
    )
    digits: str = Field(
        "single", description="How digits are split: single, triples, triples-right or free."
    )
    dictionary: Path | None = TokenizerEval.field("dictionary")
    width: int = Field(768, ge=1, description="Width of the model's embedding.")
    worth: float = Field(
        0.03,
        ge=0,
        le=1,
        description="Smallest share of tokens saved that is worth a doubled vocabulary.",
    )


class TokenizerExtend(CommandSettings):
    """The options of `llmcurate tokenizer extend`."""

    command = "tokenizer extend"

    vocab: int | None = Field(
        None, ge=2, description="Largest size of the new vocabulary, including the old tokens."
    )
    min_frequency: int = Field(
        2, ge=1, description="Minimum occurrences of a pair of tokens to merge it (BPE)."
    )
    init: Literal["mean", "focus", "random"] = Field(
        "mean",
        description="How new rows of the embeddings start: as the mean of the old tokens that spell"
        " the new one; as a blend of tokens with similar contexts in the texts (Dobler and de Melo"
        " 2023); or random with the old rows' distribution.",
    )
    seed: int = Field(0, ge=0, description="Seed of the random rows.")
    scripts: str = Field(
        "",
        description="Scripts allowed in the tokens of --from, separated by commas; with a minus,"
        " such as -Thai, scripts that are not. Default: all.",
    )


class TokenizerPrune(CommandSettings):
    """The options of `llmcurate tokenizer prune`."""

    command = "tokenizer prune"

    vocab: int | None = Field(
        None, ge=1, description="Size of the new vocabulary; the most used tokens are kept."
    )
    min_count: int | None = Field(
        None, ge=1, description="Minimum uses of a token to keep it; 1 keeps every used token."
    )

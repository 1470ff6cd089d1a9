# Written by `make reference`.

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from curate.steps.contracts import Settings

class Extract(Settings):
    """Turns HTML into text; rows that already have text pass unchanged."""

    def __init__(
        self,
        *,
        extractor: Literal["blocks", "resiliparse", "trafilatura", "justext", "text"] = ...,
        output: Literal["text", "markdown"] = ...,
        links: Literal["drop", "keep"] = ...,
        comments: Literal["auto", "keep", "drop", "mark"] = ...,
        tables: Literal["keep", "drop", "markdown"] = ...,
        kind: Literal["auto", "article", "collection", "documentation", "forum", "listing", "product", "service"] = ...,
        embedded: bool = ...,
        favor: Literal["balanced", "precision", "recall"] = ...,
        stop_words: str = ...,
        max_html_bytes: int = ...,
        max_replaced: int | None = ...,
    ) -> None: ...

class C4(Settings):
    """Cuts lines that are not sentences; drops pages with code, filler text or too little text."""

    def __init__(
        self,
        *,
        variant: Literal["tfds", "paper"] = ...,
        max_page_chars: int = ...,
        max_word_chars: int = ...,
        min_words_per_line: int = ...,
        min_sentences: int = ...,
        require_end_mark: bool = ...,
        lorem_ipsum_phrases: str | Path | Sequence[str] = ...,
        javascript_phrases: str | Path | Sequence[str] = ...,
        policy_phrases: str | Path | Sequence[str] = ...,
        badwords: str | Path | Sequence[str] | None = ...,
        badwords_sha256: str | None = ...,
        badwords_lang: str = ...,
        badwords_fraction: float = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class C4Paragraphs(Settings):
    """Drops pages with too few long lines (mC4, Xue et al. 2021, section 3.1)."""

    def __init__(
        self,
        *,
        min_paragraphs: int = ...,
        min_chars: int = ...,
    ) -> None: ...

class BadWords(Settings):
    """Drops pages that contain a word of a list, as C4 and mC4 do."""

    def __init__(
        self,
        *,
        badwords: str | Path | Sequence[str] | None = ...,
        badwords_sha256: str | None = ...,
        badwords_lang: str = ...,
        badwords_fraction: float = ...,
    ) -> None: ...

class RefinedwebLines(Settings):
    """Cuts lines that are not running text, and drops pages that lose too many words."""

    def __init__(
        self,
        *,
        variant: str = ...,
        max_uppercase: float = ...,
        max_numeric: float = ...,
        short_line_words: int = ...,
        counted: str | Path | Sequence[str] = ...,
        anywhere: str | Path | Sequence[str] = ...,
        line_ends: str | Path | Sequence[str] = ...,
        line_starts: str | Path | Sequence[str] = ...,
        max_removed_words: float = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class GopherQuality(Settings):
    """Drops documents whose words, symbols and lines do not look like prose."""

    def __init__(
        self,
        *,
        variant: Literal["paper", "datatrove", "dolma", "dclm"] = ...,
        min_words: int = ...,
        max_words: int = ...,
        min_word_length: float = ...,
        max_word_length: float = ...,
        max_symbol_ratio: float = ...,
        max_bullet_lines: float = ...,
        max_ellipsis_lines: float = ...,
        min_alpha_words: float = ...,
        min_stop_words: int = ...,
        stop_words: str | Path | Sequence[str] | None = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class GopherRepetition(Settings):
    """Drops documents that repeat lines, paragraphs or runs of words."""

    def __init__(
        self,
        *,
        variant: Literal["paper", "datatrove", "dolma", "dclm"] = ...,
        max_duplicate_lines: float = ...,
        max_duplicate_paragraphs: float = ...,
        max_duplicate_line_chars: float | None = ...,
        max_duplicate_paragraph_chars: float = ...,
        max_top_n_gram_chars: Mapping[str, float] = ...,
        max_duplicate_n_gram_chars: Mapping[str, float] = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class FinewebQuality(Settings):
    """Drops documents whose lines lack end marks, are short, are duplicates or have few words."""

    def __init__(
        self,
        *,
        variant: Literal["datatrove", "paper"] = ...,
        min_end_marks: float = ...,
        max_short_lines: float = ...,
        short_line_chars: int = ...,
        max_duplicate_chars: float | None = ...,
        max_newlines: float = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class PeriodicRepetition(Settings):
    """Drops documents that repeat a short sequence of words and symbols many times in a row."""

    def __init__(
        self,
        *,
        max_period: int = ...,
        min_times: int = ...,
    ) -> None: ...

class ColumnFilter(Settings):
    """Drops documents by a column: numbers outside limits, or values that are (or are not) in a list."""

    def __init__(
        self,
        *,
        column: str,
        min: float | None = ...,
        max: float | None = ...,
        keep: Sequence[str] = ...,
        drop: Sequence[str] = ...,
        missing: Literal["drop", "keep"] = ...,
    ) -> None: ...

class Oscar(Settings):
    """Removes short lines at both ends of pages, drops pages of short lines, annotates the others."""

    def __init__(
        self,
        *,
        long_chars: int = ...,
        min_long_share: float = ...,
        drop: Sequence[str] = ...,
    ) -> None: ...

class RootsWords(Settings):
    """Cuts addresses and overlong words out of texts, as ROOTS does before its filters."""

    def __init__(
        self,
        *,
        lang: str | None = ...,
        address_parts: str | Path | Sequence[str] = ...,
    ) -> None: ...

class Roots(Settings):
    """Drops documents by ROOTS' rules, with the parameters of their language."""

    def __init__(
        self,
        *,
        lang: str | None = ...,
        stop_words: str | Path | Sequence[str] | None = ...,
        flagged_words: str | Path | Sequence[str] | None = ...,
    ) -> None: ...

class DocumentLength(Settings):
    """Drops documents shorter than `min` or longer than `max`."""

    def __init__(
        self,
        *,
        words: str = ...,
        unit: Literal["words", "chars", "bytes"] = ...,
        min: int | None = ...,
        max: int | None = ...,
        profile: str = ...,
    ) -> None: ...

class UrlFilter(Settings):
    """Drops pages whose URL is on a list or has listed words, or is missing from the keep lists."""

    def __init__(
        self,
        *,
        domains: str | Sequence[str] = ...,
        hosts: str | Sequence[str] = ...,
        urls: str | Sequence[str] = ...,
        banned_words: str | Sequence[str] = ...,
        soft_words: str | Sequence[str] = ...,
        max_soft_words: int = ...,
        banned_subwords: str | Sequence[str] = ...,
        exclude: str | Sequence[str] = ...,
        allow: str | Sequence[str] = ...,
        keep_domains: str | Sequence[str] = ...,
        keep_hosts: str | Sequence[str] = ...,
        keep_urls: str | Sequence[str] = ...,
        sha256: Mapping[str, str] = ...,
    ) -> None: ...

class Code(Settings):
    """Drops source files that look like data, markup or generated output."""

    def __init__(
        self,
        *,
        variant: Literal["starcoder", "redpajama"] = ...,
        path_column: str = ...,
        max_line: int = ...,
        max_mean_line: float = ...,
        min_alnum: float = ...,
        min_letters_per_token: float | None = ...,
        extensions: Sequence[str] | None = ...,
        generated_phrases: str | Path | Sequence[str] = ...,
        min_html_text: int = ...,
        min_html_share: float = ...,
        min_data_chars: int = ...,
        max_data_chars: int = ...,
    ) -> None: ...

class LicenseNotice(Settings):
    """Cuts copyright and licence notices from the heads of source files."""

    def __init__(
        self,
        *,
        variant: Literal["notice", "redpajama"] = ...,
    ) -> None: ...

class License(Settings):
    """Keeps documents under chosen licences."""

    def __init__(
        self,
        *,
        keep: Sequence[str] = ...,
        column: str = ...,
        header: bool = ...,
        unknown: Literal["drop", "keep"] = ...,
    ) -> None: ...

class Notebook(Settings):
    """Turns Jupyter notebooks into text; other documents pass unchanged."""

    def __init__(
        self,
        *,
        format: Literal["script", "markdown"] = ...,
        path_column: str = ...,
    ) -> None: ...

class Pii(Settings):
    """Replaces personal data."""

    def __init__(
        self,
        *,
        emails: bool = ...,
        ips: bool = ...,
        phones: bool = ...,
        credit_cards: bool = ...,
        keys: bool = ...,
        replacement: Literal["example", "token", "tag"] = ...,
        max_found: int | None = ...,
    ) -> None: ...

class OptOut(Settings):
    """Drops documents by robots.txt, ai.txt, X-Robots-Tag, robots `meta` and TDM reservations."""

    def __init__(
        self,
        *,
        robots: bool = ...,
        robots_txt: str | Sequence[str] = ...,
        agents: str | Sequence[str] = ...,
        signals: str | Sequence[str] = ...,
        ai_txt: bool = ...,
        unreachable: Literal["allow", "disallow"] = ...,
        headers: bool = ...,
        meta: bool = ...,
        directives: str | Sequence[str] = ...,
        tdm: bool = ...,
    ) -> None: ...

class Python(Settings):
    """Drops documents by a function in your own file: keep(text, metadata)."""

    def __init__(
        self,
        *,
        function: str,
        batch: bool = ...,
        min: float | None = ...,
        max: float | None = ...,
    ) -> None: ...

class NewlineRuns(Settings):
    """Shortens runs of newlines, as DCLM does before it judges a page."""

    def __init__(
        self,
        *,
        most: int = ...,
    ) -> None: ...

class Wangchanberta(Settings):
    """Drops documents with too little Thai text and cleans the others."""

    def __init__(
        self,
        *,
        min_thai_chars: int = ...,
        min_thai_share: float = ...,
        join_lines: bool = ...,
    ) -> None: ...

class Language(Settings):
    """Labels every document with its language, and drops other languages and unclear documents."""

    def __init__(
        self,
        *,
        profile: str = ...,
        model: str | None = ...,
        model_sha256: str | None = ...,
        keep: str | Sequence[str] = ...,
        threshold: float | None = ...,
        max_chars: int = ...,
        min_chars: int = ...,
        lines: bool = ...,
        line_chars: int = ...,
    ) -> None: ...

class MathScore(Settings):
    """Drops documents that are not about mathematics, by a model's score."""

    def __init__(
        self,
        *,
        model: str,
        score_label: str | None = ...,
        threshold: float = ...,
        plain_threshold: float = ...,
        model_sha256: str | None = ...,
    ) -> None: ...

class Tagger(Settings):
    """Cuts text that gets a label from a fastText model, or drops documents with such text."""

    def __init__(
        self,
        *,
        model: str,
        tag: str | None = ...,
        unit: Literal["sentence", "paragraph", "document"] = ...,
        threshold: float = ...,
        action: Literal["cut", "drop"] = ...,
        model_sha256: str | None = ...,
    ) -> None: ...

class Quality(Settings):
    """Scores documents and drops those with a score below `threshold`."""

    def __init__(
        self,
        *,
        model: str | None = ...,
        model_sha256: str | None = ...,
        score_label: str | None = ...,
        threshold: float | None = ...,
        keep_fraction: float | None = ...,
        pareto: float | None = ...,
        seed: int = ...,
    ) -> None: ...

class QualityBuckets(Settings):
    """Puts documents into buckets by percentiles of their scores, and drops no documents."""

    def __init__(
        self,
        *,
        scores: str | Sequence[str],
        combine: Literal["mean", "max", "learned"] = ...,
        weights: Sequence[float] = ...,
        target: str | None = ...,
        by: str | None = ...,
        buckets: int = ...,
        equal: bool = ...,
    ) -> None: ...

class Label(Settings):
    """Labels every document with your own fastText model, and drops no documents."""

    def __init__(
        self,
        *,
        model: str,
        threshold: float = ...,
        model_sha256: str | None = ...,
    ) -> None: ...

class DedupExact(Settings):
    """Keeps one document of each set with the same text or URL."""

    def __init__(
        self,
        *,
        key: Literal["text", "url"] = ...,
        normalize: bool | None = ...,
        hash: Literal["xxh3-128", "murmur3-128", "blake2b-128", "blake2b-256", "sha256", "sha3-256", "sha1-64"] = ...,
        max_removal: float = ...,
        compare: Literal["raw", "nfc", "nfkc_cf"] = ...,
        survivor: str = ...,
        against: Sequence[str] = ...,
        keep: Literal["one", "none"] = ...,
    ) -> None: ...

class DedupMinhash(Settings):
    """Keeps one document of each set of near duplicates."""

    def __init__(
        self,
        *,
        preset: Literal["fineweb", "lee2022", "dclm", "refinedweb"] = ...,
        bands: int | None = ...,
        rows: int | None = ...,
        threshold: float | None = ...,
        recall: float | None = ...,
        permutations: int | None = ...,
        false_positive_weight: float | None = ...,
        verify: float | None = ...,
        seed: int = ...,
        max_removal: float = ...,
        compare: Literal["raw", "nfc", "nfkc_cf"] = ...,
        survivor: str = ...,
        against: Sequence[str] = ...,
        keep: Literal["one", "none"] = ...,
        shingle: Literal["word", "char", "byte"] | None = ...,
        ngram: int | None = ...,
        normalize: Literal["lower", "datatrove"] = ...,
    ) -> None: ...

class BloomFile(Settings):
    """Drops documents whose URL or text is in a pybloom-live filter."""

    def __init__(
        self,
        *,
        file: str,
        key: Literal["url", "text"] = ...,
    ) -> None: ...

class DedupBloom(Settings):
    """Removes paragraphs and documents whose n-grams a Bloom filter has mostly seen before."""

    def __init__(
        self,
        *,
        survivor: str = ...,
        mode: Literal["old-both", "paragraph", "document", "dolma-paragraph", "dolma-document"] = ...,
        ngram: int = ...,
        threshold: float = ...,
        key: Literal["text", "url"] = ...,
        expected: int | None = ...,
        false_positives: float = ...,
        seed: int = ...,
        max_removal: float = ...,
        compare: Literal["raw", "nfc", "nfkc_cf"] = ...,
        against: Sequence[str] = ...,
    ) -> None: ...

class DedupPassages(Settings):
    """Cuts lines, paragraphs or spans of sentences that occur more than once in the corpus."""

    def __init__(
        self,
        *,
        survivor: str = ...,
        unit: Literal["line", "sentences", "paragraph"] = ...,
        span: int | None = ...,
        keep: Literal["one", "none"] = ...,
        hash: Literal["murmur3-128", "xxh3-128", "blake2b-128", "sha1-64"] = ...,
        min_sentences: int | None = ...,
        min_words: int | None = ...,
        max_removal: float = ...,
        compare: Literal["raw", "nfc", "nfkc_cf"] = ...,
        against: Sequence[str] = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class DedupSemantic(Settings):
    """Keeps one document of each chain of documents with similar embeddings."""

    def __init__(
        self,
        *,
        compare: str = ...,
        survivor: str = ...,
        embedding: str = ...,
        max_tokens: int = ...,
        features: int = ...,
        dimensions: int = ...,
        residual: int = ...,
        clusters: int | None = ...,
        nearest: int = ...,
        epsilon: float = ...,
        keep_fraction: float | None = ...,
        prototypicality: float | None = ...,
        recluster: bool = ...,
        seed: int = ...,
        max_removal: float = ...,
        against: Sequence[str] = ...,
        keep: Literal["one", "none"] = ...,
    ) -> None: ...

class DedupSuffixArray(Settings):
    """Cuts passages that also occur elsewhere in the corpus, found with suffix arrays."""

    def __init__(
        self,
        *,
        compare: str = ...,
        survivor: str = ...,
        unit: Literal["bytes", "characters", "tokens"] | None = ...,
        threshold: int | None = ...,
        tokenizer: str | None = ...,
        keep: Literal["first", "none"] = ...,
        boundary: Literal["character", "word", "line"] = ...,
        min_chars: int = ...,
        keep_index: bool = ...,
        memory_mib: int = ...,
        max_removal: float = ...,
        against: Sequence[str] = ...,
    ) -> None: ...

class Decontaminate(Settings):
    """Drops documents that contain items of evaluation sets, or cuts the items out."""

    def __init__(
        self,
        *,
        evals: str | Sequence[str],
        fields: str | Sequence[str] = ...,
        mode: Literal["13-gram", "50-char", "overlap", "jaccard"] = ...,
        ngram: int | None = ...,
        threshold: float | None = ...,
        shortest: int | None = ...,
        samples: int | None = ...,
        seed: int = ...,
        max_hits: int | None = ...,
        max_items: int | None = ...,
        action: Literal["drop", "cut"] = ...,
        context: int = ...,
        min_piece: int = ...,
        max_pieces: int = ...,
        max_removal: float = ...,
        compare: Literal["raw", "nfc", "nfkc_cf"] = ...,
    ) -> None: ...

class Perplexity(Settings):
    """Sorts documents into head, middle and tail by perplexity."""

    def __init__(
        self,
        *,
        model: str,
        by: Literal["document", "paragraph"] = ...,
        keep: str | Sequence[str] = ...,
        low: float = ...,
        head: float = ...,
        tail: float = ...,
        cutoffs: Literal["own", "ccnet"] = ...,
        ccnet_sha256: Mapping[str, str] = ...,
        cuts: Mapping[str, Sequence[Any]] = ...,
        least: float | None = ...,
        most: float | None = ...,
        first: bool = ...,
        least_first: float | None = ...,
    ) -> None: ...

class Mix(Settings):
    """Mix sources by weights and epochs, in a random order drawn from a seed."""

    def __init__(
        self,
        *,
        sources: Mapping[str, Sequence[str]] = ...,
        weights: str | Mapping[str, float] = ...,
        alpha: float = ...,
        unit: Literal["tokens", "bytes", "documents"] = ...,
        tokenizer: str | None = ...,
        total: int | None = ...,
        amounts: Mapping[str, int] = ...,
        epochs: Mapping[str, float] = ...,
        floors: Mapping[str, float] = ...,
        caps: Mapping[str, float] = ...,
        max_epochs: float = ...,
        nearest: bool = ...,
        by: str | None = ...,
        quality: Any | None = ...,
        since: str | None = ...,
        until: str | None = ...,
        undated: bool = ...,
        overlap: Literal["exact", "none"] = ...,
        seed: int = ...,
        part_bytes: int = ...,
    ) -> None: ...

class Export(Settings):
    """Writes the corpus in a format of other tools."""

    def __init__(
        self,
        *,
        format: Literal["jsonl", "warc", "minhash", "bloom"] = ...,
        compression: Literal["zst", "gz", "none"] = ...,
        part_bytes: int = ...,
        attributes: bool = ...,
        key: Literal["url", "text"] = ...,
        false_positives: float = ...,
        minhash: Mapping[str, Any] = ...,
    ) -> None: ...

class Tokenizer(Settings):
    """Trains tokenizers on the corpus."""

    def __init__(
        self,
        *,
        model: Literal["bpe", "char-bpe", "wordpiece", "unigram"] = ...,
        vocab: str | int | Sequence[int] = ...,
        pattern: Literal["gpt2", "cl100k", "o200k", "llama3", "qwen2", "deepseek", "whitespace", "metaspace", "graphemes", "bert"] | None = ...,
        regex: Sequence[str] = ...,
        graphemes: bool = ...,
        digits: Literal["single", "triples", "triples-right", "free"] | None = ...,
        forbid: Sequence[str] = ...,
        newlines: Literal["single", "runs"] | None = ...,
        space_runs: int = ...,
        script_boundaries: bool = ...,
        dictionary: str | None = ...,
        space_token: str | None = ...,
        normalize: Literal["none", "nfc", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf", "bert"] = ...,
        chat_template: str | None = ...,
        special_tokens: Sequence[str] = ...,
        reserved: int = ...,
        pad_to: int = ...,
        min_frequency: int = ...,
        max_token_length: int | None = ...,
        superwords: int | None = ...,
        character_coverage: float | None = ...,
        character_seeds: bool = ...,
        sample_bytes: int | None = ...,
        seed: int = ...,
        weights: str | None = ...,
        temperature: float | None = ...,
        by: str | None = ...,
    ) -> None: ...

class Shards(Settings):
    """Encodes the corpus into token shards (docs/design/contracts.md, Token shards)."""

    def __init__(
        self,
        *,
        tokenizer: str | None = ...,
        pattern: str | None = ...,
        shard_tokens: int = ...,
        val_fraction: float = ...,
        val_by: Literal["cluster", "id"] | None = ...,
        shuffle: int | None = ...,
        sampling: float | None = ...,
        sampling_seed: int = ...,
        packing: Literal["input", "neighbours"] = ...,
        bos: bool | None = ...,
        eos: bool = ...,
        bos_token: str | None = ...,
        eos_token: str | None = ...,
        format: Literal["llmcurate", "megatron", "nanogpt", "olmo"] = ...,
        loss_mask: str | None = ...,
    ) -> None: ...

class Pretrain(Settings):
    """Trains a language model on token shards."""

    def __init__(
        self,
        *,
        shards: str | None = ...,
        model: str | Mapping[str, Any] = ...,
        steps: int = ...,
        rows: int = ...,
        context: int = ...,
        objective: str | Mapping[str, Any] = ...,
        optimizer: str = ...,
        lr: float = ...,
        schedule: str = ...,
        lr_floor: float = ...,
        warmup: int = ...,
        decay: float = ...,
        weight_decay: float = ...,
        beta1: float = ...,
        beta2: float = ...,
        eps: float = ...,
        momentum: float = ...,
        embedding_rate: float = ...,
        head_rate: float = ...,
        clip: float = ...,
        z_loss: float = ...,
        teacher: str | None = ...,
        mtp_weight: float = ...,
        teacher_weight: float = ...,
        temperature: float = ...,
        ema: float = ...,
        seed: int = ...,
        packing: str = ...,
        sources: Sequence[Mapping[str, Any]] = ...,
        stages: Sequence[Mapping[str, Any]] = ...,
        max_epochs: float | None = ...,
        unique_tokens: int | None = ...,
        vocab_size: int | None = ...,
        end_of_text: int | None = ...,
        tokenizer: str | None = ...,
        token_dtype: str | None = ...,
        held_out: float = ...,
        attention: str = ...,
        precision: Literal["auto", "fp32", "bf16"] = ...,
        device: str = ...,
        parallel: Literal["ddp", "fsdp"] = ...,
        replicas: int = ...,
        tensor: int = ...,
        context_parallel: int = ...,
        offload: bool = ...,
        expert_parallel: bool = ...,
        accumulate: int = ...,
        loss_chunk: int = ...,
        recompute: bool | int = ...,
        compile: bool = ...,
        deterministic: bool = ...,
        spike: Literal["stop", "skip", "rollback"] = ...,
        spike_factor: float = ...,
        spike_window: int = ...,
        spike_batches: int = ...,
        log_every: int = ...,
        tensorboard: bool = ...,
        csv: bool = ...,
        wandb: bool = ...,
        profile: int = ...,
        eval_every: int = ...,
        eval_tokens: int = ...,
        eval: Mapping[str, str] = ...,
        checkpoint_every: int = ...,
        keep_checkpoints: int = ...,
        keep_best: bool = ...,
        async_checkpoints: bool = ...,
        processes: int = ...,
        time: str | None = ...,
        tokens: int | None = ...,
        depth: int | None = ...,
        plan: str | None = ...,
    ) -> None: ...

class SearchIndex(Settings):
    """Builds the suffix arrays that `llmcurate search` reads."""

    def __init__(
        self,
        *,
        memory_mib: int = ...,
    ) -> None: ...

class LanguageModel(Settings):
    """Trains a fastText model on documents and a column of labels."""

    def __init__(
        self,
        *,
        column: str = ...,
        dim: int = ...,
        minn: int = ...,
        maxn: int = ...,
        word_ngrams: int = ...,
        loss: Literal["hs", "softmax", "ova"] = ...,
        bucket: int = ...,
        epochs: int = ...,
        lr: float = ...,
        min_count: int = ...,
        held_out: float = ...,
        piece_chars: int = ...,
        quantize: bool = ...,
        cutoff: int = ...,
        seed: int = ...,
    ) -> None: ...

class PerplexityModel(Settings):
    """Trains an n-gram model on the corpus."""

    def __init__(
        self,
        *,
        order: int = ...,
        variant: Literal["plain", "ccnet"] = ...,
        unit: Literal["whitespace", "words", "pieces"] = ...,
        pieces: str | None = ...,
        vocab: int | None = ...,
        prune: str | Sequence[int] = ...,
        min_count: int = ...,
        discount_fallback: bool = ...,
        memory_mib: int = ...,
    ) -> None: ...

class Normalize(Settings):
    """Repairs mojibake and, on request, unifies different spellings of characters."""

    def __init__(
        self,
        *,
        mojibake: bool = ...,
        form: Literal["nfc", "nfd", "nfkc", "nfkd"] | None = ...,
        line_ends: bool = ...,
        blanks: bool = ...,
        invisible: bool = ...,
        quotes: bool = ...,
    ) -> None: ...

class Ratios(Settings):
    """Drops documents by shares of digits, URLs and other characters, by repetition and lengths."""

    def __init__(
        self,
        *,
        min: Mapping[str, float] = ...,
        max: Mapping[str, float] = ...,
        char_ngram: int = ...,
        word_ngram: int = ...,
        profile: str = ...,
        words: str = ...,
    ) -> None: ...

class DedupSimhash(Settings):
    """Keeps one document of each set whose SimHash fingerprints differ in few bits."""

    def __init__(
        self,
        *,
        max_distance: int = ...,
        max_removal: float = ...,
        compare: Literal["raw", "nfc", "nfkc_cf"] = ...,
        survivor: str = ...,
        against: Sequence[str] = ...,
        keep: Literal["one", "none"] = ...,
        shingle: Literal["word", "char", "byte"] | None = ...,
        ngram: int | None = ...,
        normalize: Literal["lower", "datatrove"] = ...,
    ) -> None: ...

class ListedWords(Settings):
    """Drops documents by the share of their words that are on a list."""

    def __init__(
        self,
        *,
        words: str | Path | Sequence[str],
        min: float | None = ...,
        max: float | None = ...,
    ) -> None: ...

class PythonMap(Settings):
    """Changes texts and adds columns by a function in your own file: change(text, metadata)."""

    def __init__(
        self,
        *,
        function: str,
        batch: bool = ...,
        columns: Mapping[str, Literal["str", "int", "float", "bool"]] = ...,
    ) -> None: ...

class Replace(Settings):
    """Replaces the matches of a regular expression, or single characters."""

    def __init__(
        self,
        *,
        pattern: str | None = ...,
        replacement: str = ...,
        characters: Mapping[str, str] = ...,
    ) -> None: ...

class Classifier(Settings):
    """Scores documents by a sequence classification model, and drops those outside limits."""

    def __init__(
        self,
        *,
        model: str,
        max_tokens: int = ...,
        batch_size: int | None = ...,
        score_label: str | None = ...,
        threshold: float | None = ...,
        least: float | None = ...,
        most: float | None = ...,
    ) -> None: ...

class TokenCount(Settings):
    """Counts the tokens of every document in the column `token_count`, and drops no documents."""

    def __init__(
        self,
        *,
        tokenizer: str,
    ) -> None: ...

"""Settings for reading inputs: the recipe's section `read`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import xxhash
from pydantic import BaseModel, ConfigDict, Field, field_validator

from llmcurate.base.disk.yaml_file import read_counts, within_64_bits
from llmcurate.base.settings import Described

if TYPE_CHECKING:
    from curate.formats.columns import Columns
    from curate.formats.data_sets import Choice

BATCH_SECONDS = 600.0


class ReadSettings(Described, BaseModel):
    """Settings for reading the input (the recipe's section `read`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _numbers = field_validator("*")(within_64_bits)
    _counts = field_validator("*", mode="before")(read_counts)

    partition_bytes: int | None = Field(None, ge=1 << 10)
    """Cut the input into partitions of about this many bytes, as stored. Without a value 16 MiB;
    for an input above 64 GiB a 4096th of it, at most 1 GiB."""
    batch_bytes: int = Field(8 << 20, ge=1 << 10)
    """End a batch of documents when its columns have this many bytes."""
    batch_rows: int = Field(1000, ge=1)
    """End a batch of documents when it has this many rows."""
    batch_seconds: float = Field(BATCH_SECONDS, ge=0, allow_inf_nan=False)
    """Most seconds for a batch. A batch that takes longer is processed document by document; a
    document that alone takes longer, twice, is quarantined. 0: no limit."""
    max_record_bytes: int = Field(64 << 20, ge=1)
    """Reject records and lines of more bytes than this. They are not held in memory if the format
    allows that."""
    max_payload_bytes: int = Field(64 << 20, ge=1)
    """Reject documents of more bytes than this after decompression."""
    # The default is more than any column of published corpora has, even Common Crawl's 5 MiB pages.
    max_carried_bytes: int = Field(16 << 20, ge=1)
    """Most bytes of carried columns in a document. Above it the largest values become null and are
    counted; a value is never shortened, because that would change it."""
    # On by default: comparing takes a twelfth of the time of reading, and 2 % of a run of fineweb.
    digests: Literal["count", "drop", "none"] = "count"
    """Compare the contents of WARC records with their WARC-Block-Digest and WARC-Payload-Digest, if
    stated. count: keep documents that differ, count and report them. drop: reject them. none: do
    not compare."""
    quote: Literal["auto", "double", "none"] = "auto"
    """Quoting in CSV and TSV. double: a field that begins with a quotation mark is quoted. none:
    the mark is a character like others. auto: CSV is quoted, and TSV if the beginning of the file
    fits that better."""
    columns: dict[Literal["id", "text", "url", "date", "lang", "source"], str] = {}
    """Input columns that have another name, by our name: {text: content, id: uuid} reads the text
    from the column `content`."""
    limit: int | None = Field(None, ge=1)
    """Read at most this many documents, the first of the input. Without a value, read all."""
    share: float | None = Field(None, gt=0, le=1)
    """Read only this share of the documents, drawn by a hash of the id; skip and count the others.
    Without a value, read all."""
    seed: int = Field(0, ge=0)
    """Seed of the draw of `share`; another seed draws other documents."""
    split: str | None = None
    """Splits to read from data sets of the Hugging Face hub: names or patterns, separated by
    commas; * reads all. Without a value, read train."""
    config: str | None = None
    """Configurations to read from data sets of the Hugging Face hub: names or patterns, separated
    by commas; * reads all. Without a value, read the default one."""
    # The folder does not change the output, so it is not part of a run's identity.
    fetch: str | None = Field(None, exclude=True)
    """Fetch inputs that are URLs into this folder and read them there."""
    # A run's identity includes the files that are read, not why others are skipped.
    skip_unreadable: bool = Field(False, exclude=True)
    """Skip and count files and folders that cannot be read for lack of permission."""

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide which documents are read."""
        from curate.formats.inputs import PARTITION_BYTES

        values = self.model_dump(mode="json")
        if self.share is None:
            del values["seed"]
        del values["split"], values["config"]  # the files are in the fingerprint of the input
        # How files are cut is in the fingerprint of the input.
        return values | {"partition_bytes": self.partition_bytes or PARTITION_BYTES}

    @property
    def named(self) -> Columns:
        """The columns that the input names differently: llmcurate's name -> the input's name."""
        from curate.formats.columns import Columns

        return Columns({str(ours): theirs for ours, theirs in self.columns.items()})

    @property
    def choice(self) -> Choice:
        """The splits and configurations of data sets that are read."""
        from curate.formats.data_sets import Choice

        return Choice(self.split, self.config)

    def draws(self, key: str) -> bool:
        """Return True if the document with the id `key` is in the share that is read."""
        if self.share is None:
            return True
        # The prefix makes other draws by id (held-out text, samples) independent.
        drawn = xxhash.xxh3_64_intdigest(f"read.share\0{key}".encode("utf-8", "replace"), self.seed)
        return drawn < self.share * 2.0**64

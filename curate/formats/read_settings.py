"""Settings of reading: the recipe's section `read`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import xxhash
from pydantic import BaseModel, ConfigDict, Field, field_validator

from llmcurate.base.disk.yaml_file import read_counts, within_64_bits

if TYPE_CHECKING:
    from curate.formats.columns import Columns
    from curate.formats.data_sets import Choice

BATCH_SECONDS = 600.0


class ReadSettings(BaseModel):
    """How the input is read (the recipe's section `read`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _numbers = field_validator("*")(within_64_bits)
    _counts = field_validator("*", mode="before")(read_counts)

    partition_bytes: int | None = Field(
        None,
        ge=1 << 10,
        description="A partition holds about this many bytes of the input as it is stored. Without"
        " a value 16 MiB, and of an input of more than 64 GiB a 4096th, up to 1 GiB.",
    )
    batch_bytes: int = Field(
        8 << 20,
        ge=1 << 10,
        description="A batch of documents ends when its columns have this many bytes.",
    )
    batch_rows: int = Field(
        1000, ge=1, description="A batch of documents ends when it has this many rows."
    )
    batch_seconds: float = Field(
        BATCH_SECONDS,
        ge=0,
        allow_inf_nan=False,
        description="A batch that takes longer than this is worked on document by document; a"
        " document that takes longer alone, twice, is quarantined. 0: no limit.",
    )
    max_record_bytes: int = Field(
        64 << 20,
        ge=1,
        description="A record or line of more bytes than this is rejected, without being held where"
        " the format allows that.",
    )
    max_payload_bytes: int = Field(
        64 << 20,
        ge=1,
        description="A document of more bytes than this after decompression is rejected.",
    )
    # More than any column of published corpora has, Common Crawl's longest pages (5 MiB) included.
    max_carried_bytes: int = Field(
        16 << 20,
        ge=1,
        description="Columns that are carried along have at most this many bytes in a document:"
        " above it the largest are left out (null), whole, since a part of one would be another"
        " value; they are counted.",
    )
    # On: it takes a twelfth of the time of reading, 2 % of a run of fineweb.
    digests: Literal["count", "drop", "none"] = Field(
        "count",
        description="Contents of WARC records are compared with WARC-Block-Digest and"
        " WARC-Payload-Digest, where a document's record states them. With count those that differ"
        " are counted and reported and stay, with drop they are rejected, with none nothing is"
        " compared.",
    )
    quote: Literal["auto", "double", "none"] = Field(
        "auto",
        description="Whether a field of CSV or TSV that begins with a quotation mark is quoted"
        " (double), or the mark is a character like others (none). With auto CSV is quoted, and"
        " TSV where the beginning of the file fits that better.",
    )
    columns: dict[Literal["id", "text", "url", "date", "lang", "source"], str] = Field(
        {},
        description="Columns of the input that have another name, by the name here:"
        " {text: content, id: uuid}.",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="Only so many documents are read, the first of the input. Without a value all"
        " are.",
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Only this share of the documents is read, drawn by a hash of the id; the"
        " others are passed over and counted. Without a value all are.",
    )
    seed: int = Field(
        0, ge=0, description="Seed of the draw of `share`: another seed draws other documents."
    )
    split: str | None = Field(
        None,
        description="Splits to read of a data set of the Hugging Face hub: names or patterns with"
        " commas between them; * reads all. Without a value train is read.",
    )
    config: str | None = Field(
        None,
        description="Configurations to read of a data set of the Hugging Face hub: names or"
        " patterns with commas between them; * reads all. Without a value the default one is read.",
    )
    # The folder decides no output, so it is no part of a run's identity.
    fetch: str | None = Field(
        None,
        exclude=True,
        description="Inputs that are URLs are fetched into this folder and read there.",
    )
    # The files that are read are part of the identity, not why others are not.
    skip_unreadable: bool = Field(
        False,
        exclude=True,
        description="Files and folders that may not be read are passed over and counted.",
    )

    def identity(self) -> dict[str, Any]:
        """The settings that decide which documents are read."""
        from curate.formats.inputs import PARTITION_BYTES

        values = self.model_dump(mode="json")
        if self.share is None:
            del values["seed"]
        del values["split"], values["config"]  # the files are in the fingerprint of the input
        # How files are cut is in the fingerprint of the input.
        return values | {"partition_bytes": self.partition_bytes or PARTITION_BYTES}

    @property
    def named(self) -> Columns:
        """The names of the input's columns."""
        from curate.formats.columns import Columns

        return Columns({str(ours): theirs for ours, theirs in self.columns.items()})

    @property
    def choice(self) -> Choice:
        """The splits and configurations of data sets."""
        from curate.formats.data_sets import Choice

        return Choice(self.split, self.config)

    def draws(self, key: str) -> bool:
        """Return whether the share holds the document of this id."""
        if self.share is None:
            return True
        # Named, so that other draws by id (held-out text, samples) are of other documents.
        drawn = xxhash.xxh3_64_intdigest(f"read.share\0{key}".encode("utf-8", "replace"), self.seed)
        return drawn < self.share * 2.0**64

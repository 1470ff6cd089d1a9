"""FineWeb's corpus of some archives by DataTrove itself; runs in DataTrove's own environment.

    their_fineweb.py MODEL OUT ARCHIVE...

The steps and settings of its examples/fineweb.py: reader, Trafilatura, language, filters, MinHash
and PII. MODEL is the fastText model of languages, given instead of fetched. Left out is URLFilter,
whose lists it fetches. Its limit of a second a page is raised, since it depends on the machine.
OUT/corpus/*.jsonl has the documents.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path


def main(model: str, out: Path, archives: list[str]) -> None:
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
        LanguageFilter,
    )
    from datatrove.pipeline.formatters import PIIFormatter
    from datatrove.pipeline.readers import JsonlReader, WarcReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter
    from datatrove.utils.hashing import HashConfig

    source, work = out / "archives", out / "work"
    shutil.rmtree(out, ignore_errors=True)
    source.mkdir(parents=True)
    for number, archive in enumerate(archives):
        (source / f"{number:05d}-{Path(archive).name}").symlink_to(Path(archive).resolve())

    def run(*pipeline: object, tasks: int = 1) -> None:
        logs = str(work / "logs" / str(len(list((work / "logs").glob("*")))))
        LocalPipelineExecutor(list(pipeline), tasks=tasks, workers=1, logging_dir=logs).run()

    (work / "logs").mkdir(parents=True)
    language = LanguageFilter(["en"])
    language.model.MODEL_URL = str(Path(model).resolve())
    run(
        WarcReader(str(source), glob_pattern="*", default_metadata={"dump": "archives"}),
        Trafilatura(favour_precision=True, timeout=60),
        language,
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
        JsonlWriter(str(work / "filtered"), compression=None),
    )
    config = MinhashConfig(
        hash_config=HashConfig(hash_fc="sha1", precision=64),
        num_buckets=14,
        hashes_per_bucket=8,
        n_grams=5,
    )
    filtered = JsonlReader(str(work / "filtered"))
    run(filtered, MinhashDedupSignature(str(work / "signatures"), config))
    run(
        MinhashDedupBuckets(str(work / "signatures"), str(work / "buckets"), config=config),
        tasks=config.num_buckets,
    )
    run(MinhashDedupCluster(str(work / "buckets"), str(work / "remove"), config=config))
    run(
        filtered,
        MinhashDedupFilter(str(work / "remove")),
        PIIFormatter(),
        JsonlWriter(str(out / "corpus"), compression=None),
    )
    count = sum(len(path.read_text().splitlines()) for path in (out / "corpus").glob("*.jsonl"))
    print(json.dumps({"documents": count}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

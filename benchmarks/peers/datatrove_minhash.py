"""DataTrove's four stages of MinHash over a parquet file, in its own environment and one process.

datatrove_minhash.py INPUT.parquet FOLDER    {"seconds": {stage: wall}, "cpu": all, "kept": N}

Its own defaults: 14 buckets of 8 hashes of 64 bits, word 5-grams of its English tokenizer, its
normal form. Documents come from parquet and go to parquet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig()
    assert (config.num_buckets, config.hashes_per_bucket, config.n_grams) == (14, 8, 5)

    def read() -> ParquetReader:
        return ParquetReader(str(source.parent), glob_pattern=source.name, file_progress=False)

    place = {name: str(folder / name) for name in ("sign", "bucket", "remove", "kept")}
    stages = {
        "signatures": (1, [read(), MinhashDedupSignature(place["sign"], config=config)]),
        "buckets": (14, [MinhashDedupBuckets(place["sign"], place["bucket"], config=config)]),
        "cluster": (1, [MinhashDedupCluster(place["bucket"], place["remove"], config=config)]),
        "filter": (
            1,
            [read(), MinhashDedupFilter(place["remove"]), ParquetWriter(place["kept"])],
        ),
    }
    seconds = {}
    before = os.times()
    for name, (tasks, pipeline) in stages.items():
        begin = time.perf_counter()
        logs = str(folder / f"logs-{name}")
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=logs).run()
        seconds[name] = time.perf_counter() - begin
    after = os.times()
    cpu = sum(after[:4]) - sum(before[:4])

    import pyarrow.parquet as pq

    kept = sum(pq.read_metadata(p).num_rows for p in Path(place["kept"]).glob("*.parquet"))
    print(json.dumps({"seconds": seconds, "cpu": cpu, "kept": kept}))


if __name__ == "__main__":
    main()

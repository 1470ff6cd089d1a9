"""Dolma's paragraph dedup over FOLDER/documents/*.json.gz, run by the interpreter that has it.

    python dolma_paragraphs.py FOLDER PARAGRAPHS

The compiled module is loaded alone: the package around it wants its taggers' libraries. Prints
seconds (wall and processor) as JSON; the attributes it writes say what it would cut.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
import sysconfig
import time
from pathlib import Path


def main() -> None:
    folder, paragraphs = Path(sys.argv[1]), int(sys.argv[2])
    (path,) = Path(sysconfig.get_paths()["platlib"], "dolma").glob("dolma.*.so")
    loader = importlib.machinery.ExtensionFileLoader("dolma", str(path))
    spec = importlib.util.spec_from_loader("dolma", loader)
    assert spec is not None
    dolma = importlib.util.module_from_spec(spec)
    loader.exec_module(dolma)
    config = {
        "documents": [str(folder / "documents" / "*.json.gz")],
        "dedupe": {
            "name": "paragraphs",
            "paragraphs": {"attribute_name": "copies", "paragraph_separator": "\n"},
            "skip_empty": True,
            "min_length": 0,
            "min_words": 0,
            "num_partitions": 1,
            "partition_index": 0,
            "file_partition": False,
            "document_dir": "documents",
        },
        "bloom_filter": {
            "file": str(folder / "bloom.bin"),
            "read_only": False,
            "size_in_bytes": 0,
            "estimated_doc_count": paragraphs,
            "desired_false_positive_rate": 1e-6,
        },
        "work_dir": {"input": str(folder / "in"), "output": str(folder / "out")},
        "processes": 1,
        "is_s3_volume": False,
        "compression": {"input": None, "output": None},
    }
    wall, cpu = time.perf_counter(), time.process_time()
    dolma.deduper_entrypoint(json.dumps(config))
    print(
        json.dumps({"seconds": time.perf_counter() - wall, "processor": time.process_time() - cpu})
    )


if __name__ == "__main__":
    main()

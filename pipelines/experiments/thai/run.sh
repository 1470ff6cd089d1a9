#!/bin/sh
# Thai: does a model get better or worse if no token crosses the end of a dictionary word, and if
# the tokenizer is a unigram model?
#
# Paper: Lowphansirikul et al. 2021 (WangchanBERTa, arXiv:2101.09635), section 4: models with
# SentencePiece's pieces and with the words of a dictionary, fine-tuned on Thai tasks. No value
# looked up.
# Reads: CORPORA/longtext/th-thaigov.jsonl.zst, government news in Thai: the first 2,000 characters
# of 500 documents. Other documents are scored. The dictionary is PyThaiNLP's, of llmcurate's extra
# segment.
# Takes 6 minutes on two cores shared with other work.
#
#   sh pipelines/experiments/thai/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"

"$PYTHON" - "$corpora/longtext/th-thaigov.jsonl.zst" "$out" <<'END'
import shutil
import sys

from curate.text.languages import list_of
from experiments.texts import read, shuffled, write

source, out = sys.argv[1:]
words = list_of("tha")
if words is None:
    sys.exit("no dictionary of Thai: pip install 'llmcurate[segment]'")
shutil.copy(words, f"{out}/words.txt")
news = [{**row, "text": row["text"][:2000]} for row in shuffled(read(source), 0)]
write(f"{out}/news.jsonl", news[:500])
write(f"{out}/later.jsonl", news[500:])
END

news="$out/news.jsonl"
llmcurate compare bpe="$news" dictionary="$news" unigram="$news" \
  --set dictionary.tokenizer.dictionary="$out/words.txt" --set unigram.tokenizer.model=unigram \
  --on news="$out/later.jsonl" --eval-bytes 200000 --epochs "${EPOCHS:-0.9}" $small --vocab 2048 \
  -o "$out/comparison"

# Sourced by each run.sh with its arguments CORPORA and OUT. $here is the script's folder.
# TOKENS (per run), EPOCHS (where runs read equal text) and SEEDS replace the numbers of all
# scripts: less for a quick pass, more for a larger machine.
# Models: $small, a decoder of 295 thousand parameters; $encoder, RoBERTa of 330 thousand; $t5, of
# 480 thousand. All have the same training settings.
corpora=$1 out=$2 here=$(dirname "$0")
mkdir -p "$out"
PYTHON=${PYTHON:-python3}
PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}  # for experiments.texts
export PYTHONPATH
seeds=${SEEDS:-3}
training="--vocab 1024 --context 128 --rows 8 --seeds $seeds"
small="$training --set model.layers=2 --set model.hidden=96 --set model.attention.heads=3
  --set model.attention.kv_heads=1 --set model.feed_forward.width=256"
encoder="$training --model roberta-tiny --set model.layers=2 --set model.hidden=96
  --set model.attention.heads=3 --set model.attention.kv_heads=3
  --set model.feed_forward.width=384 --set model.dropout=0"
t5="$training --model t5-tiny --set model.layers=2 --set model.encoder={\"layers\":2}
  --set model.hidden=96 --set model.attention.heads=3 --set model.attention.kv_heads=3
  --set model.feed_forward.width=384"

# Write OUT/pieces.jsonl, $1 pieces of 2,000 characters of novels, and OUT/novels.jsonl, 100 pieces
# by other authors to score.
write_novels() {
  "$PYTHON" - "$corpora" "$out" "$1" <<'END'
import sys

from experiments.texts import novels, write

corpora, out, count = sys.argv[1:]
trained, scored = novels(corpora, 2000)
write(f"{out}/pieces.jsonl", trained[: int(count)])
write(f"{out}/novels.jsonl", scored[:100])
END
}

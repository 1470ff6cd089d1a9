# Sourced by each run.sh with its arguments CORPORA and OUT. $here is the script's folder. $small is
# the model of all experiments, 295 thousand parameters, with its training settings.
corpora=$1 out=$2 here=$(dirname "$0")
mkdir -p "$out"
PYTHON=${PYTHON:-python3}
PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}  # for experiments.texts
export PYTHONPATH
small="--vocab 1024 --context 128 --rows 8 --seeds 3
  --set model.layers=2 --set model.hidden=96 --set model.attention.heads=3
  --set model.attention.kv_heads=1 --set model.feed_forward.width=256"

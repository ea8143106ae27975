#!/bin/sh
# kvik transcribe with a tiny random model, whose words mean nothing: the forms of the output, several files, and refusals.
. "$(dirname "$0")/lib.inc"

M=tests/fixtures/speech/tiny
A=tests/fixtures/audio
run transcribe $M $A/tone.wav
if err_has libsndfile; then
    skip "this build reads no recordings"
    finish
    exit 0
fi
check "text: one run gives the same as another" status 0
cp "$work/out" "$work/first"
run transcribe $M $A/tone.wav --threads 1
check "text does not depend on the threads" cmp -s "$work/out" "$work/first"
run transcribe $M $A/tone.wav --json --word-timestamps --temperature 0 --logprob-threshold 0 --no-speech-threshold 0 \
    --compression-ratio-threshold 0
check "json" status 0
cp "$work/out" "$work/json"
check "json: one object with segments and words" python3 -c "
import json
o = json.load(open('$work/json'))
assert o['seconds'] == 0.7 and o['language'] in ('en', 'de', 'ja'), o
assert o['text'] == ''.join(s['text'] for s in o['segments'])
for s in o['segments']:
    assert s['start'] <= s['end'] and s['tokens'] and s['temperature'] == 0
    assert all(0 <= w['start'] <= w['end'] <= 1 for w in s.get('words', []))
"
run transcribe $M $A/tone.flac $A/tone.mp3 --json
check "several files give a line each" test "$(grep -c '^{' "$work/out")" = 2
run transcribe $M $A/tone.wav --format vtt
check "vtt has its header" test "$(head -n 1 "$work/out")" = WEBVTT
run transcribe $M $A/tone.wav --format srt
check "srt" status 0
# Subtitles of several recordings are files beside them; --output-dir writes files of any format.
run transcribe $M $A/tone.wav --format srt --seed 3
cp "$work/out" "$work/one.srt"
mkdir "$work/talks" "$work/texts"
cp $A/tone.wav "$work/talks/first.day.wav"
cp $A/tone.wav "$work/talks/second"
run transcribe $M "$work/talks/first.day.wav" "$work/talks/second" --format srt --seed 3
check "subtitles of two recordings" status 0
check "lie beside them, with the text of one" cmp -s "$work/talks/first.day.srt" "$work/one.srt"
check "also if the name has no ending" cmp -s "$work/talks/second.srt" "$work/one.srt"
check "nothing goes to standard output" out_empty
check "the command names the files" err_has 'second: the transcript is in .*second.srt'
echo mine >"$work/talks/second.srt"
run transcribe $M "$work/talks/first.day.wav" "$work/talks/second" --format srt
check "a file that is there is not overwritten" status 1
check "and the sentence says what to do" err_has 'first.day.srt is there already; --overwrite replaces it'
check "it stays" same "$(cat "$work/talks/second.srt")" mine
run transcribe $M "$work/talks/first.day.wav" "$work/talks/second" --format srt --seed 3 --overwrite
check "unless that is asked for" cmp -s "$work/talks/second.srt" "$work/one.srt"
run transcribe $M "$work/talks/first.day.wav" $M/config.json "$work/talks/second" --format vtt
check "a recording that fails does not keep the others from their files" \
    sh -c "[ -s '$work/talks/first.day.vtt' ] && [ -s '$work/talks/second.vtt' ] && [ ! -e $M/config.vtt ]"
check "and the command fails" status 1
run transcribe $M $A/tone.wav $A/tone.mp3 --format srt
check "recordings whose files would be one are refused" status 2
check "by name" err_has 'would both write .*tone.srt'
run transcribe $M $A/tone.wav --output-dir "$work/texts" --json
check "--output-dir writes any format" sh -c "grep -q '\"segments\"' '$work/texts/tone.json'"
run transcribe $M $A/tone.wav --output-dir "$work/nowhere"
check "a directory that is not there is refused before anything is computed" status 1
# A recording that comes through a pipe.
run transcribe $M $A/tone.mp3 --seed 3
cp "$work/out" "$work/tone.mp3.txt"
through() { # FILE ARGS...: the same of a pipe
    piped=$1
    shift
    last="cat $piped | kvik transcribe $*"
    cat "$piped" | timeout -k 5 $patience "$KVIK" transcribe "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
through $A/tone.mp3 $M - --seed 3
check "standard input" status 0
check "gives the text of the file" cmp -s "$work/out" "$work/tone.mp3.txt"
mkfifo "$work/fifo"
cat $A/tone.mp3 >"$work/fifo" &
run transcribe $M "$work/fifo" --seed 3
wait
check "a FIFO gives the text of the file" cmp -s "$work/out" "$work/tone.mp3.txt"
through $A/tone.wav $M - --json
check "JSON names it" json "o['file'] == 'standard input' and o['seconds'] == 0.7"
through $M/config.json $M -
check "a pipe without a recording is an error" status 1
check "which names standard input" err_has '^kvik: standard input: '
run transcribe $M -
check "an empty standard input is an error" err_has 'standard input is empty'
through $A/tone.wav $M - -
check "standard input can be given once" status 2
through $A/tone.wav $M - --output-dir "$work"
check "standard input has no name for a file" status 2
TMPDIR="$work/nowhere" through $A/tone.wav $M -
check "WAV needs no copy" status 0
TMPDIR="$work/nowhere" through $A/tone.mp3 $M -
check "a directory for the copy that is not there" err_has 'nowhere first: No such file or directory; set TMPDIR'
run transcribe $M $A/tone.wav --seed 3
cp "$work/out" "$work/tone.wav.txt"
through $A/tone.wav $M - --seed 3
check "WAV through a pipe gives the text of the file" cmp -s "$work/out" "$work/tone.wav.txt"
TMPDIR="$work/nowhere" timeout -k 5 $patience "$KVIK" transcribe $M - --seed 3 <$A/tone.mp3 >"$work/out" 2>"$work/err"
check "a file as standard input gives its text, without a copy" cmp -s "$work/out" "$work/tone.mp3.txt"
head -c 16001 $A/tone.wav >"$work/half.wav"
through "$work/half.wav" $M - --json
check "WAV that ends early is read as far as it goes" json "0.35 < o['seconds'] < 0.37"
check "with a notice" err_has '^kvik: standard input: the end of the recording is missing: its header promises .* came; the sound that came is read (0.36 s)'
python3 - "$work/odd.wav" <<'PY'
import struct, sys
open(sys.argv[1], "wb").write(struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 44, b"WAVE", b"fmt ", 16, 7, 1, 8000, 8000, 1, 8, b"data", 8000)
                              + bytes(range(250)) * 32)
PY
run transcribe $M "$work/odd.wav" --seed 3
cp "$work/out" "$work/odd.txt"
through "$work/odd.wav" $M - --seed 3
check "a WAV form that needs a copy gives the text of the file" cmp -s "$work/out" "$work/odd.txt"
through $A/tone.wav $golden/models/gpt2 -
refused "the model is checked before the pipe is read" 1 'gpt2 does not transcribe recordings'
head -c 44 $A/tone.wav >"$work/none.wav"
through "$work/none.wav" $M -
check "WAV without samples is an error" err_has '^kvik: standard input: the recording has no samples'
"$KVIK" transcribe $M "$work/fifo" 2>"$work/err" & # no writer comes
waits=$!
until grep -q . "/proc/$waits/maps" 2>/dev/null && ls -l "/proc/$waits/fd" | grep -q fifo; do sleep 0.02; done
kill -INT $waits
wait $waits
check "Ctrl-C ends the wait for a writer" same $? 130
head -c 16000 $A/tone.wav >"$work/cut.wav"
run transcribe $M "$work/cut.wav" --json
check "a WAV file without its end is read" status 0
check "as far as it goes" json "0.35 < o['seconds'] < 0.37"
check "with a notice" err_has 'cut.wav: the end of the file is missing: its header promises .* the file has 15.6 KiB; the sound that is there is read (0.36 s)'
run transcribe $M $A/missing.wav
check "a missing file is an error" status 1
run transcribe $M $M/config.json
check "a file that is no recording is refused" status 1
run transcribe $M $A/tone.wav --language klingon
check "an unknown language is refused" status 1
run transcribe $M $A/tone.wav --temperature hot
check "a temperature that is no number is refused" status 2
run transcribe $M $A/tone.wav --json --temperature 0 --num-beams 4
check "beams" status 0
cp "$work/out" "$work/beams"
run transcribe $M $A/tone.wav --json --temperature 0 --num-beams 4 --threads 1
check "beams do not depend on the threads" cmp -s "$work/out" "$work/beams"
check "beams find another text" sh -c "! cmp -s '$work/json' '$work/beams'"
run transcribe $M $A/tone.wav --num-beams 3 --length-penalty -1 --early-stopping never
check "a penalty of the length, and when a search ends" status 0
check "beams at temperature 0, with no notice of beams" sh -c "! grep -q beams '$work/err'"
run transcribe $M $A/tone.wav --num-beams 3 --temperature 0.2,0.4
check "beams without temperature 0: a notice" status 0
check "beams without temperature 0: what to add" err_has '^--num-beams has no effect at temperatures above 0; add 0 to --temperature$'
run transcribe $M $A/tone.wav --temperature 0.2 --length-penalty 2 --early-stopping true
check "a penalty of the length without beams: a notice" err_has '^--length-penalty has no effect without beams; add --num-beams 4$'
check "when a search ends, without beams: a notice" err_has '^--early-stopping has no effect without beams; add --num-beams 4$'
run transcribe $M $A/tone.wav --num-beams 2 --early-stopping soon
check "a search that ends at no known time is refused" status 2
run transcribe $M $A/tone.wav --num-beams 2 --length-penalty 1e9
refused "a penalty without measure is refused" 1 'length_penalty of'
run transcribe $golden/models/gpt2 $A/tone.wav
check "a model that hears nothing is refused" status 1
run transcribe $golden/models/gpt2 $M/config.json
refused "the model is checked before the file is read" 1 'gpt2 does not transcribe recordings'
run transcribe $M
check "without a file the usage is wrong" status 2

# A model invents text where nobody speaks; texts and subtitles leave it out, JSON says so.
python3 - "$work" <<'PY'
import math, random, struct, sys, wave
draw = random.Random(1)
n = 16000 * 4
tone = [round(3000 * math.sin(i * 0.1)) for i in range(32000)]
for name, s in (("zero", [0] * n), ("offset", [3000] * n), ("faint", [round(draw.gauss(0, 8)) for _ in range(n)]),
                ("dither", [draw.choice([-1, 0, 1]) for _ in range(n)]), ("soft", [round(260 * math.sin(i * 0.1)) for i in range(n)]),
                ("short", [3000] * 9600), ("resampled", [8000] * 132300), ("spoken", tone + [0] * 320000)):
    with wave.open(f"{sys.argv[1]}/{name}.wav", "wb") as f:
        f.setparams((1, 2, 44100 if name == "resampled" else 16000, 0, "NONE", ""))
        f.writeframes(struct.pack("<%dh" % len(s), *s))
PY
for name in zero offset short resampled faint dither; do
    run transcribe $M "$work/$name.wav" --json
    check "$name: no segment is speech" json "o['segments'] and all(s['no_speech'] and (s['level'] or -999) < -60 for s in o['segments'])"
    check "$name: the text is the model's" json "o['text'] == ''.join(s['text'] for s in o['segments']) != ''"
    run transcribe $M "$work/$name.wav"
    check "$name: the text is empty" out_empty
    check "$name: a line says what was left out" err_has 'where nobody speaks .* left out'
    run transcribe $M "$work/$name.wav" --format srt
    check "$name: no subtitles" out_empty
done
run transcribe $M "$work/soft.wav" --json
check "what is soft is speech" json "o['segments'] and not any(s['no_speech'] for s in o['segments'])"
run transcribe $M "$work/spoken.wav" --json
# The tone ends at 2 s; a second of the window on both sides of a segment counts, since timestamps are not exact.
check "sound, then silence: each segment is judged alone" json "{s['no_speech'] for s in o['segments']} == {True, False} and \
    not any(s['no_speech'] for s in o['segments'] if s['start'] < 2) and all(s['no_speech'] for s in o['segments'] if s['start'] > 3.02)"
run transcribe $M "$work/spoken.wav" --format vtt
check "subtitles have what was spoken, and nothing behind it" sh -c "grep -q -- '-->' '$work/out' && ! grep -q '^00:00:1' '$work/out'"
finish

#!/bin/sh
# kvik transcribe with recordings that another program decodes: ffmpeg or GStreamer, programs that misbehave in their place, and
# neither.
. "$(dirname "$0")/lib.inc"

M=tests/fixtures/speech/tiny
A=tests/fixtures/audio
run transcribe $M $A/tone.wav --seed 3 --json
if err_has libsndfile; then
    skip "this build reads no recordings"
    finish
    exit 0
fi
python3 - "$work/low.wav" <<'PY'
import sys, wave
with wave.open(sys.argv[1], "wb") as w:
    w.setnchannels(1), w.setsampwidth(2), w.setframerate(16000)
    w.writeframes(b"".join((i * 40 % 4096 * 6 - 12288).to_bytes(2, "little", signed=True) for i in range(11200)))
PY
mkdir "$work/none" "$work/fake" "$work/gst"
usual=$PATH
# with DIR ARGS...: kvik, which finds programs in DIR only.
with() {
    last="PATH=$1 kvik $*"
    dir=$1
    shift
    PATH=$dir "$timeout" -k 5 $patience "$kvik" "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
timeout=$(command -v timeout)
kvik=$(realpath "$KVIK")
# No program is left behind. fakes: the processes that run in the directory of the fake programs.
fakes() { grep -lsa "$work/[f]ake" /proc/[0-9]*/cmdline | grep -v "/$$/"; }
none() { [ -z "$(fakes)" ]; }
gone() { within none; }

# Neither program: the sentence has the command. The files have the first bytes of their formats only.
printf '\0\0\0\040ftypM4A \0\0\0\0M4A mp42' >"$work/talk.m4a"
printf '\032\105\337\243webm' >"$work/talk.webm"
printf 'FORM\0\0\0\0AIFFCOMM' >"$work/talk.aiff"
with "$work/none" transcribe $M "$work/talk.m4a"
refused "m4a without a program that decodes it" 1 'talk.m4a is MP4 or QuickTime'
check "the sentence has the command" sh -c "tr '\n' ' ' <'$work/err' | grep -q 'ffmpeg -i [^ ]*/talk.m4a -ar 16000 -ac 1 [^ ]*/talk.m4a.wav'"
with "$work/none" transcribe $M "$work/talk.webm"
refused "webm" 1 'Matroska or WebM'
with "$work/none" transcribe $M "$work/talk.aiff"
refused "AIFF" 1 'is AIFF'
with "" transcribe $M "$work/talk.m4a"
refused "an empty PATH" 1 'ffmpeg -i'
cp "$work/talk.m4a" "$work/it's -i.m4a"
with "$work/none" transcribe $M "$work/it's -i.m4a"
check "the command quotes a name" err_has "it'\\\\''s -i.m4a' -ar"
for name in -i.m4a concat:a.m4a; do
    cp "$work/talk.m4a" "$work/$name"
    (cd "$work" && PATH=$work/none "$kvik" transcribe "$OLDPWD/$M" -- "$name") >"$work/out" 2>"$work/err"
    check "a name that could be an option or an address: $name" err_has "ffmpeg -i '*./$name"
done
PATH=$work/none "$kvik" transcribe $M - <"$work/talk.m4a" >"$work/out" 2>"$work/err"
check "standard input has no name" err_has 'ffmpeg -i FILE -ar 16000 -ac 1 FILE.wav'
mkdir "$work/here"
printf '#!/bin/sh\necho ran >&2\n' >"$work/here/ffmpeg"
chmod +x "$work/here/ffmpeg"
for path in : . :here; do
    (cd "$work/here" && PATH=$path "$kvik" transcribe "$OLDPWD/$M" "$work/talk.m4a") >"$work/out" 2>"$work/err"
    check "no program of the working directory is run: PATH=$path" err_has 'neither is installed'
done

# fake TEXT: a program in the place of ffmpeg.
fake() {
    printf '#!/bin/sh\n# %s\n%s\n' "$work/fake" "$1" >"$work/fake/ffmpeg"
    chmod +x "$work/fake/ffmpeg"
}
raw() { # the sound of low.wav as ffmpeg would write it
    printf 'PATH=%s; tail -c +45 %s' "$usual" "$work/low.wav"
}
fake "$(raw)"
with "$work/fake" transcribe $M "$work/talk.m4a" --json
check "what the program writes is the recording" json "o['seconds'] == 0.7"
check "JSON names the file" json "o['file'].endswith('talk.m4a')"
check "a notice says who decoded" err_has 'talk.m4a: decoded by ffmpeg'
fake "printf '%s\\n' \"\$@\" >&2; exit 1"
(cd "$work" && PATH=$work/fake "$kvik" transcribe "$OLDPWD/$M" -- -i.m4a) >"$work/out" 2>"$work/err"
check "the program gets its own words only, and its last line is the reason" err_has 'i.m4a: ffmpeg cannot decode it: pipe:1'
fake "cat <&0 >/dev/null; printf 'first\\nred \\033[31m\\033]0;title\\007 end\\n\\n' >&2; exit 3"
sed -i "2i PATH=$usual" "$work/fake/ffmpeg"
with "$work/fake" transcribe $M "$work/talk.m4a"
refused "a program that fails" 1 'cannot decode it: red ?.31m?.0;title? end'
check "no control character passes" sh -c "! tr -d '\n' <'$work/err' | grep -q '[[:cntrl:]]'"
fake "exit 7"
with "$work/fake" transcribe $M "$work/talk.m4a"
refused "without a word" 1 'exit status 7'
fake "exit 0"
with "$work/fake" transcribe $M "$work/talk.m4a"
refused "without sound" 1 'ffmpeg finds no sound in it'
fake "$(raw); echo half is missing >&2"
with "$work/fake" transcribe $M "$work/talk.m4a"
check "sound and a complaint" status 0
check "give a notice with it" err_has 'not without a fault: half is missing'
fake "kill -SEGV \$\$"
with "$work/fake" transcribe $M "$work/talk.m4a"
refused "a program that crashes" 1 'was ended by signal 11'
fake "PATH=$usual; yes escaped >&2 & cat /dev/zero"
with "$work/fake" transcribe $M "$work/talk.m4a"
refused "sound without end is cut" 1 'makes more than 64.0 MiB of sound of .* and was stopped'
check "and the program is stopped" gone
(ulimit -f 64; with "$work/fake" transcribe $M "$work/talk.m4a"; exit $rc)
rc=$?
refused "a limit of files" 1 'ulimit -f'
TMPDIR=$work/nowhere with "$work/fake" transcribe $M "$work/talk.m4a"
refused "no directory for the sound" 1 'nowhere first: No such file or directory; set TMPDIR'
printf 'no program\n' >"$work/fake/ffmpeg"
with "$work/fake" transcribe $M "$work/talk.m4a"
refused "a file that is no program" 1 'cannot be started: Exec format error'
# The limits come right after the start; the program may be ahead of them, and ends before it is one that hangs.
fake "PATH=$usual; n=0; until [ \$(ulimit -d) = 2097152 ] || [ \$n = 400 ]; do sleep 0.1; n=\$((n + 1)); done; ulimit -d >&2; exit 1"
with "$work/fake" transcribe $M "$work/talk.m4a"
check "memory is limited" err_has 'cannot decode it: 2097152'
fake "PATH=$usual; sh -c 'sleep 1000; : $work/fake' & sh -c 'sleep 1000; : $work/fake'"
PATH=$work/fake "$kvik" transcribe $M "$work/talk.m4a" >"$work/out" 2>"$work/err" &
waits=$!
until [ "$(fakes)" ]; do sleep 0.02; done
kill -INT $waits
wait $waits
rc=$?
check "Ctrl-C ends the wait for the program" status 130
check "and the program, with what it has started" gone
if [ "${KVIK_TEST_LONG:-0}" != 0 ]; then
    with "$work/fake" transcribe $M "$work/talk.m4a"
    refused "a program that hangs" 1 'ffmpeg has written nothing for a minute and was stopped'
    check "is stopped" gone
fi

# The programs themselves.
PATH=$usual
if ! command -v ffmpeg >/dev/null; then
    skip "ffmpeg is not installed: m4a, webm, mp4 and mkv are not decoded"
    finish
    exit
fi
# make NAME OPTIONS...: a recording from tone.wav; false if this ffmpeg has no encoder for it.
make() {
    made=$work/$1
    shift
    ffmpeg -nostdin -loglevel error -y "$@" "$made" 2>/dev/null && return
    skip "this ffmpeg cannot make ${made##*/}"
    return 1
}
sound() { json "0.65 < o['seconds'] < 0.8 and o['file'] == '$made'"; }
# decoded NAME: the recording is transcribed.
decoded() {
    run transcribe $M "$made" --json
    check "${made##*/}" status 0
    check "${made##*/} has its sound" sound
    check "${made##*/}: a notice" err_has "${made##*/}: decoded by ffmpeg"
}
make tone.m4a -i $A/tone.wav -c:a aac && decoded
make tone.webm -i $A/tone.wav -c:a libopus && decoded
make tone.mp4 -f lavfi -i testsrc=d=0.7 -i $A/tone.wav -c:a aac && decoded
make tone.mkv -f lavfi -i testsrc=d=0.7 -i $A/tone.wav && decoded
make tone.aiff -i "$work/low.wav" && decoded
make tone.caf -i $A/tone.wav && decoded
make tone.ts -i $A/tone.wav -c:a aac && decoded
make tone.aac -i $A/tone.wav -c:a aac && decoded
run transcribe $M "$work/low.wav" --seed 3
cp "$work/out" "$work/text"
run transcribe $M "$work/tone.aiff" --seed 3
check "the sound of 16 bits gives the text of the WAV file" cmp -s "$work/out" "$work/text"
last="kvik transcribe - <tone.aiff"
"$KVIK" transcribe $M - --seed 3 <"$work/tone.aiff" >"$work/out" 2>"$work/err"
check "also on standard input" cmp -s "$work/out" "$work/text"
cat "$work/tone.aiff" | "$KVIK" transcribe $M - --seed 3 >"$work/out" 2>"$work/err"
check "and through a pipe" cmp -s "$work/out" "$work/text"
check "with a notice" err_has 'standard input: decoded by ffmpeg'
mkdir "$work/names"
for name in -i.aiff http:a.aiff concat:a.aiff 'a b|c.aiff'; do
    cp "$work/tone.aiff" "$work/names/$name"
    (cd "$work/names" && "$kvik" transcribe "$OLDPWD/$M" --seed 3 -- "$name") >"$work/out" 2>"$work/err"
    check "a name that could be an option or an address: $name" cmp -s "$work/out" "$work/text"
done
run transcribe $M "$work/tone.aiff" "$work/names/a b|c.aiff" --format srt
check "subtitles lie beside the recordings" test -s "$work/tone.srt" -a -s "$work/names/a b|c.srt"
if [ -s "$work/tone.m4a" ]; then
    head -c 3000 "$work/tone.m4a" >"$work/cut.m4a"
    run transcribe $M "$work/cut.m4a"
    refused "a file that was cut" 1 'cut.m4a: ffmpeg cannot decode it: '
fi
if [ -s "$work/tone.webm" ]; then
    head -c 3000 "$work/tone.webm" >"$work/cut.webm"
    run transcribe $M "$work/cut.webm"
    check "a webm file that was cut is decoded as far as it goes" status 0
    check "with a notice" err_has 'cut.webm: ffmpeg has decoded it, but not without a fault: '
fi
# A playlist behind the first bytes of another format opens no file.
printf '\0\0\0\040ftyp\n#EXTM3U\n#EXTINF:1,\nfile://%s\n' "$PWD/$A/tone.wav" >"$work/list.mp4"
run transcribe $M "$work/list.mp4"
refused "no file of a playlist is read" 1 'list.mp4: ffmpeg cannot decode it'

if [ -s "$work/tone.webm" ] && gst=$(command -v gst-launch-1.0); then
    ln -s "$gst" "$work/gst/gst-launch-1.0"
    with "$work/gst" transcribe $M "$work/tone.webm" --json
    if err_has 'missing a plug-in'; then
        skip "GStreamer has no plug-ins for webm"
    else
        check "GStreamer alone" json "0.65 < o['seconds'] < 0.8"
        check "a notice names it" err_has 'tone.webm: decoded by gst-launch-1.0'
    fi
    with "$work/gst" transcribe $M "$work/talk.webm"
    refused "GStreamer and a damaged file" 1 'gst-launch-1.0 cannot decode it: ERROR'
else
    skip "GStreamer is not installed (gst-launch-1.0)"
fi
finish

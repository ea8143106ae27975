#!/bin/sh
# kvik transcribe with recordings that come through a pipe: text is there before the recording has ended, Ctrl-C ends it, and
# memory does not grow. Nothing waits for a time: the writer goes on when it has read the text.
. "$(dirname "$0")/lib.inc"

M=tests/fixtures/speech/tiny
run transcribe $M tests/fixtures/audio/tone.wav
if err_has libsndfile; then
    skip "this build reads no recordings"
    finish
    exit 0
fi
live() { # NAME CASE
    mkdir "$work/$2"
    last="transcribe_stream.py $2"
    timeout -k 5 $patience python3 tests/cli/transcribe_stream.py "$2" "$KVIK" $M "$work/$2" >"$work/out" 2>"$work/err"
    rc=$?
    check "$1" same "$(cat "$work/out")" ok
}
live "a FIFO: a window's text is there before the next window" fifo
live "standard input: a window's text is there before the next window" stdin
live "subtitles come as they are known" formats
live "Ctrl-C ends the recording, and what has come is transcribed" ctrl_c
live "the recordings behind it are transcribed" ctrl_c_next
live "a recorder does not wait while a window is computed" room
live "samples without a header are refused at once" raw
live "Ctrl-C before there is sound ends the command" ctrl_c_early
live "a second Ctrl-C ends the command at once" ctrl_c_twice
live "memory does not grow with the recording" memory
run transcribe $M --capture 0
refused "whisper.cpp's option for a microphone is known" 2 'arecord -f S16_LE -r 16000 | kvik transcribe MODEL -'
finish

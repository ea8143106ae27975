#!/bin/sh
# The command line: help, usage errors, suggestions, streams and exit codes.
. "$(dirname "$0")/lib.inc"
model=$golden/models/llama-mha

run
check "no argument is a usage error" status 2
check "no argument: nothing on stdout" out_empty
check "no argument: usage on stderr" err_has generate

run --help
check "--help succeeds" status 0
check "--help is on stdout" out_has generate
check "--help: nothing on stderr" err_empty
for command in generate chat inspect tokenize render transcribe bench eval plan models completion; do
    run --help
    check "--help lists $command" out_has "$command"
    run $command --help
    check "$command --help succeeds" status 0
    check "$command --help is on stdout" out_has "$command"
done
for name in offloaded_static hybrid_chunked sink; do
    run generate --help
    check "generate --help lists the cache $name" out_has "[ |]$name"
done
for absent in push; do
    run --help
    check "--help does not list $absent, which does not work" sh -c "! grep -qw $absent '$work/out'"
done

run --version
check "--version succeeds" status 0
check "--version has a number" out_has '^kvik [0-9]*\.[0-9]'
check "--version has the instruction sets that kernels were built for, and that of this processor" out_has '^kernels: *ref.*(this processor: [a-z0-9]*)$'
check "--version has the devices" out_has '^devices: *.*\bcpu\b'
for word in liburing libsndfile libevent libcurl hiredis GnuTLS libzmq; do # each is built in, or said to be left out
    check "--version says of $word whether it is built in" test "$(grep -c "^libraries:.*$word\|^without: *$word" "$work/out")" = 1
done
if [ -e .git ] && commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
    check "--version has the commit" out_has '^commit: *[0-9a-f]\{12\}+*$'
fi

run generat "$model"
refused "an unknown command suggests the nearest" 2 generate
for pair in genrate:generate chta:chat rum:run trancribe:transcribe; do
    run "${pair%:*}" "$model"
    refused "the command nearest to ${pair%:*} is ${pair#*:}" 2 "did you mean \"${pair#*:}\""
done
for pair in list:'kvik models' ls:'kvik models' ps:'kvik models' show:'kvik inspect' push:'uploads nothing' download:'kvik pull' server:'kvik serve' \
    version:'kvik --version' -v:'kvik --version' -V:'kvik --version' remove:'kvik rm' create:'makes no models' quantize:'--quantize q4_0'; do
    run "${pair%%:*}" some-model
    refused "kvik ${pair%%:*}, as in other programs, says what to type" 2 "${pair#*:}"
done
for option in -m --model -p --prompt --ctx-size; do
    run $option "$model"
    refused "kvik $option: a command comes first" 2 "option $option before a command" "kvik generate MODEL PROMPT"
done
for place in "$model" other.gguf; do
    run "$place"
    refused "a model without a command: $place" 2 "kvik run MODEL"
done
run run
refused "kvik run without a model" 2 "kvik run needs a MODEL"
run chat
refused "kvik chat without a model" 2 "kvik chat needs a MODEL"
run run --help
check "kvik run --help calls itself run" out_has '^usage: kvik run MODEL'
check "kvik run --help: no other name" sh -c "! grep -q 'kvik chat' '$work/out'"
run run --help-all
check "kvik run --help-all succeeds" status 0
run run "$model" --no-such-option-at-all
refused "kvik run names its own help" 2 "kvik run --help-all"
run embed "$model" text
refused "kvik embed, as in Ollama's API" 2 "no embeddings"
run tools
refused "kvik tools" 2 "kvik render"
run prompt
refused "a name of an option is no command" 2 'unknown command "prompt"'
run generate "$model" --max-new-token 3 --input-ids 5
refused "an unknown option suggests the nearest" 2 max-new-tokens
run generate "$model" --input-ids 5 --load-in-4bit
refused "--load-in-4bit, as in Transformers, says what to type" 2 "--quantize q4_0"
run generate "$model" --input-ids 5 --temperatur=2
refused "an unknown option with = suggests the nearest" 2 temperature
run generate "$model" --input-ids 5 --cache-implementation dynamik
refused "an unknown value suggests the nearest" 2 dynamic
run generate "$model" --input-ids 5 --compute quick
refused "--compute names its values" 2 exact fast
run generate "$model" --input-ids 5 --max-new-tokens
refused "an option without its value" 2 max-new-tokens
run generate "$model" --input-ids 5 --max-new-tokens three
refused "a value that is not a number" 2 max-new-tokens
run generate "$model" --input-ids 5 --max-new-tokens -3
refused "a number out of range" 2 max-new-tokens
run generate "$model" --input-ids 5,x
refused "ids that are not numbers" 2 input-ids
run generate
refused "generate without a model" 2 MODEL
run generate "$model" --input-ids 5 --threads 0x
refused "--threads takes a number" 2 threads
run generate "$model" --input-ids 5 --cache-memory 12Q
refused "--cache-memory takes bytes" 2 cache-memory
run generate "$model" --input-ids 5 --generation-config '{"max_new_tokens":'
refused "a generation config that is not JSON" 2 generation-config
run generate "$model" --input-ids 5 --generation-config '{"max_new_tokenz": 3}'
refused "a generation config with an unknown key suggests the nearest" 2 max_new_tokens
run generate "$model" --input-ids 5 --cache-config '{"nbits": 2, "nbits": 4}'
refused "a cache config that names a key twice says so" 2 cache-config duplicate
run generate "$model" --input-ids 5 --dola-layers high
refused "an unsupported option is refused by name" 2 dola_layers
run generate "$model" --input-ids 5 --num-beam-groups 4
refused "one beam cannot be in four groups" 1 num_beam_groups
run generate "$model" --input-ids 5 --bad-words-ids 3,x
refused "--bad-words-ids takes token ids" 2 bad-words-ids
run generate "$model" --input-ids 5 --sequence-bias '[[3],'
refused "--sequence-bias takes JSON" 2 sequence-bias
run generate "$model" --input-ids 5 --sequence-bias '[[3, 1.0]]'
refused "--sequence-bias takes sequences with numbers" 2 sequence_bias
run generate "$model" --input-ids 5 --exponential-decay-length-penalty 4
refused "a decay has a start and a factor" 2 exponential_decay_length_penalty
run generate "$model" --input-ids 5 --early-stopping always
refused "early stopping is true, false or never" 2 never
run generate "$model" --input-ids 5 --num-beams 2 --num-return-sequences 3
refused "no more rows than beams" 1 "3, more than num_beams, which is 2"
run generate "$model" --input-ids 5 --num-return-sequences 3
refused "greedy decoding gives one row" 1 num_return_sequences
run generate "$model" --input-ids 5 --num-beams 4 --num-beam-groups 2 --diversity-penalty 1 --do-sample
refused "groups of beams and sampling together" 1 "num_beam_groups=2 with do_sample=true"
finish

#!/bin/sh
# How kvik chat decodes: by sampling, with the values of the model or kvik's own, and what /set and /seed change. Runs on
# tiny models with a made tokenizer.
. "$(dirname "$0")/lib.inc"
python3 tests/cli/tiny.py $golden/models/llama-mha "$work/tiny" || exit 99

# talk MODEL INPUT ARGS...: runs a chat over a pipe. --verbose prints the banner.
talk() {
    model=$1 input=$2
    shift 2
    last="kvik chat $model $* <<< '$input'"
    printf "$input" | timeout -k 5 $patience "$KVIK" chat "$model" --max-new-tokens 12 --verbose "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
err_count() { [ "$(grep -c -- "$1" "$work/err")" = "$2" ]; }
# shown NAME VALUE: true if /set shows the option with this value.
shown() { err_has "^  $1  *$2"; }
config() { printf '%s' "$1" >"$work/tiny/generation_config.json"; }

config '{"eos_token_id": 2}'
talk "$work/tiny" '/set\n'
check "defaults: exit 0" status 0
check "defaults: the banner" err_has '^sampling: temperature 0.6, top_k 50, top_p 0.9, seed [0-9]*$'
check "defaults: where they come from" err_has '^(kvik.s values for chats; /set changes them, --greedy switches sampling off)$'
check "defaults: the model and its context" err_has '^tiny, context of 256 tokens$'
talk "$work/tiny" '' --max-cache-len 160
check "--max-cache-len: the banner has the limit that holds" err_has '^tiny, context of 160 tokens (max_cache_len 160; the model has 256)$'
talk "$work/tiny" '/set\n'
check "defaults: /set shows sampling" shown do_sample true
check "defaults: /set shows the temperature" shown temperature '0.6$'
check "defaults: /set shows what is off" shown min_p '0 (off)'
check "defaults: /set shows other options" shown max_new_tokens '12$'

seed_of() { sed -n 's/^sampling: .*seed \([0-9]*\).*/\1/p' "$work/err" | head -n 1; }
first=$(seed_of)
talk "$work/tiny" ''
second=$(seed_of)
talk "$work/tiny" ''
check "the seed is random" sh -c "[ '$first' != '$second' ] || [ '$first' != '$(seed_of)' ]"

talk "$work/tiny" 'abcd\nefgh\n' --seed 7
check "--seed: shown" err_has ' seed 7$'
cp "$work/out" "$work/seven"
talk "$work/tiny" 'abcd\nefgh\n' --seed 7
check "--seed: the same replies" cmp -s "$work/out" "$work/seven"
talk "$work/tiny" 'abcd\nefgh\n' --seed 8
check "--seed: another seed, other replies" sh -c "! cmp -s '$work/out' '$work/seven'"
talk "$work/tiny" '/seed 7\nabcd\nefgh\n/seed\n' --seed 8
check "/seed N: the replies of that seed" cmp -s "$work/out" "$work/seven"
check "/seed: shows the seed" err_has '^seed 7; /seed N sets another'
talk "$work/tiny" '/seed random\n/seed x\n'
check "/seed random: draws one" err_count '^seed [0-9]*$' 1
check "/seed x: refused" err_has '^kvik: seed must be an integer'
check "/seed x: exit 1 in a pipe" status 1

run generate "$work/tiny" "<user>abcd<bot>" --max-new-tokens 12
cp "$work/out" "$work/plain"
talk "$work/tiny" 'abcd\n' --greedy
check "--greedy: shown" err_has '^greedy decoding: a message always has the same reply$'
check "--greedy: the text of kvik generate, which keeps the defaults of Transformers" cmp -s "$work/out" "$work/plain"
talk "$work/tiny" 'abcd\n' --greedy --temperature 2
check "--greedy with a temperature: which option to leave out" err_has '^--temperature has no effect in greedy decoding; leave out --greedy$'
talk "$work/tiny" 'abcd\n' --do-sample false
check "--do-sample false: greedy" cmp -s "$work/out" "$work/plain"
talk "$work/tiny" 'abcd\n' --temperature 0
check "--temperature 0: greedy" cmp -s "$work/out" "$work/plain"
check "--temperature 0: no warning" sh -c "! grep -q 'no effect' '$work/err'"
talk "$work/tiny" '' --greedy --do-sample true
check "--greedy and do_sample contradict: exit 2" status 2
check "--greedy and do_sample contradict: said" err_has 'leave one out'
talk "$work/tiny" '/set do_sample true\n/set\n' --greedy
check "/set do_sample true ends --greedy" shown do_sample true
talk "$work/tiny" 'abcd\n' --num-beams 2
check "beams are not sampled unless asked" err_has '^beam search with 2 beams$'
talk "$work/tiny" 'abcd\n' --penalty-alpha 0.6 --top-k 4
check "nor contrastive search" err_has '^contrastive decoding'
talk "$work/tiny" '/set\n' --temperature 0.3 --generation-config '{"top-p": 0.5}'
check "options win over the defaults" shown temperature '0.3$'
check "--generation-config too, with dashes in names" shown top_p '0.5$'

talk "$work/tiny" '/set temperature 0.2\n/set top-k=3\n/set\nabcd\n'
check "/set: a value" shown temperature '0.2$'
check "/set: NAME=VALUE, with dashes" shown top_k '3$'
check "/set: what holds now is printed" err_has '^sampling: temperature 0.2, top_k 3,'
talk "$work/tiny" '/set max_new_tokens 3\nabcd\n/set max_new_tokens -\nabcd\n' --greedy --cache-report
check "/set: the next reply obeys" err_has 'decode 3 tokens'
check "/set NAME -: takes the change back" err_has 'decode 12 tokens'
talk "$work/tiny" '/set stop_strings xyz\n/set\n'
check "/set: other options are shown" shown stop_strings '"xyz"'
# More sequences than the cache has room for are refused when they are set, not in the next reply.
talk "$work/tiny" '/set penalty_alpha 0.6\n/set num_beams 9\n/set\nabcd\n'
check "/set: too many candidates" err_has 'a reply would need 50 sequences of the cache, which was opened for 8'
check "/set: too many beams" err_has 'a reply would need 9 sequences of the cache'
check "/set: a refused value changes nothing" same "$(grep -c 'sequences' "$work/err")" 2
talk "$work/tiny" '/set top_p 2\n/set tempratur 1\n/set temperature\n/set cache_implementation static\n/set session x\n/set top_k -\n/set --seed 3\n'
check "/set: the ranges of the command line" err_has '^kvik: top_p must be a number from 0 to 1, not "2"$'
check "/set: the nearest name" err_has '^kvik: unknown option tempratur; did you mean temperature?$'
check "/set: a missing value" err_has '/set temperature needs a value'
check "/set: what cannot change" err_has 'cache_implementation cannot change during a chat'
check "/set: options that are no generation options" err_has 'session is no generation option'
check "/set: nothing to take back" err_has '/set has not changed top_k'
check "/set: dashes before the name are fine" err_has ' seed 3$'
check "/set: exit 1 in a pipe" status 1

talk "$work/tiny" '/set max_new_tokens 3\n/set stop_strings xyz\n/set top_k 5\n/set top_k -\n'
check "/set: the new value is printed" err_has '^max_new_tokens 3$'
check "/set: the new text is printed" err_has '^stop_strings "xyz"$'
check "/set NAME -: printed too" err_has '^top_k as before /set$'
talk "$work/tiny" '/set temperature 0.5\n/set length_penalty 2\n' --greedy
check "/set without effect: what to set" err_has '^temperature has no effect in greedy decoding; /set do_sample true$'
check "/set without effect: with a value" err_has '^length_penalty has no effect without beams; /set num_beams 4$'
talk "$work/tiny" '/set temp 0.5\n/set num_predict 3\n/set stop x\n/set num_ctx 9\n/set parameter temperature 3\n/set system Be kind.\n'
check "/set: a name of other programs" err_has '^kvik: unknown option temp; /set temperature X$'
check "/set: another one" err_has '^kvik: unknown option num_predict; /set max_new_tokens N$'
check "/set: one with a remark" err_has '^kvik: unknown option stop; /set stop_strings TEXT$'
check "/set: one that cannot be set" err_has '^kvik: unknown option num_ctx; a cache grows'
check "/set parameter" err_has '^kvik: /set takes the name of the option itself: /set temperature 3$'
check "/set system" err_has '^kvik: /system TEXT sets the system message'

talk "$work/tiny" '/show info\n/history\n/regenerate\n'
check "/show" err_has '^kvik: unknown command /show; /set shows the options'
check "/history" err_has '^kvik: unknown command /history; the cursor keys'
check "/regenerate" err_has '^kvik: unknown command /regenerate; /retry draws the last reply again$'
talk "$work/tiny" '/?\n'
check "/? is /help" err_has '^/retry  '
check "/? is /help: exit 0" status 0

config '{"eos_token_id": 2, "do_sample": true, "temperature": 0.4}'
talk "$work/tiny" '/set\n'
check "a model with sampling values: they hold" err_has '^sampling: temperature 0.4, top_k 50, seed [0-9]*$'
check "a model with sampling values: the banner says so" err_has '^(values of the model.s generation_config.json; '
check "a model with sampling values: no value of kvik" shown repetition_penalty '1 (off)'
config '{"eos_token_id": 2, "top_p": 0.6}'
talk "$work/tiny" ''
check "values without do_sample: they hold" err_has '^sampling: temperature 1, top_k 50, top_p 0.6, seed'
config '{"eos_token_id": 2, "repetition_penalty": 1.05}'
talk "$work/tiny" ''
check "a penalty alone: kept beside kvik's values" err_has 'temperature 0.6, .*repetition_penalty 1.05'

# default COMMAND NAME VALUE: true if the help shows the option with this default, whatever the line breaks are.
default() {
    run "$1" --help
    tr '\n' ' ' <"$work/out" | sed 's/  *--/\n--/g; s/   */ /g' | grep -q "^--$2 .*(default $3)"
}
for pair in max-new-tokens:'no limit' do-sample:true seed:random temperature:0.6 top-p:0.9; do
    check "chat --help: --${pair%%:*} is ${pair#*:}" default chat "${pair%%:*}" "${pair#*:}"
done
check "chat --help: no default of kvik generate" sh -c "! grep -q 'set: 20' '$work/out'"
for pair in do-sample:false seed:0 temperature:1 top-p:1 repetition-penalty:1; do
    check "generate --help: --${pair%%:*} is ${pair#*:}" default generate "${pair%%:*}" "${pair#*:}"
done

# GGUF files can recommend sampling values. kvik generate does not use them.
chatty='tokenizer.chat_template={% for m in messages %}{{ m.content }}{% endfor %}<bot>'
plain=$golden/models/qwen2.gguf
python3 tests/cli/gguf.py $plain "$work/without.gguf" 'tokens=<user>,<bot>' "$chatty" || exit 99
python3 tests/cli/gguf.py $plain "$work/with.gguf" 'tokens=<user>,<bot>' "$chatty" general.sampling.temp:=0.5 \
    general.sampling.top_k:=20 general.sampling.penalty_repeat:=2.5 general.sampling.top_p:=7.5 || exit 99
talk "$work/with.gguf" 'ab\n'
check "GGUF with values: they hold" err_has '^sampling: temperature 0.5, top_k 20, repetition_penalty 2.5, seed [0-9]*$'
check "GGUF with values: the banner says so" err_has '^(values that the model.s file recommends; '
check "GGUF with values: exit 0" status 0
talk "$work/without.gguf" ''
check "GGUF without values: those of kvik" err_has '^sampling: temperature 0.6, '
run inspect "$work/with.gguf" --json
check "inspect --json: the values" json "o['sampling'] == {'temperature': 0.5, 'top_k': 20, 'repetition_penalty': 2.5}"
run inspect "$work/without.gguf" --json
check "inspect --json: none" json "o['sampling'] is None"
run generate "$work/with.gguf" abcd --max-new-tokens 12
cp "$work/out" "$work/plain"
run generate "$work/without.gguf" abcd --max-new-tokens 12
check "GGUF with values: kvik generate does not use them" cmp -s "$work/out" "$work/plain"

# NAME.chat.json beside NAME.gguf has the options of chats, and of chats alone.
beside=$work/with.chat.json
printf '{"temperature": 0.3, "min_p": 0.2, "bad_words_ids": [[5, 6]]}' >"$beside"
talk "$work/with.gguf" '/set\n'
check "values beside a GGUF: they win over those in the file" err_has '^sampling: temperature 0.3, top_k 50, min_p 0.2, seed [0-9]*$'
check "values beside a GGUF: the banner says so" err_has '^(values of the .chat.json file beside the model; '
talk "$work/with.gguf" '' --temperature 0.8
check "values beside a GGUF: the command line wins" err_has '^sampling: temperature 0.8, top_k 50, min_p 0.2, seed'
talk "$work/with.gguf" '' --greedy
check "values beside a GGUF: --greedy wins" err_has '^greedy decoding'
run generate "$work/with.gguf" abcd --max-new-tokens 12
check "values beside a GGUF: kvik generate does not use them" cmp -s "$work/out" "$work/plain"
talk "$work/without.gguf" ''
check "values beside a GGUF: not those of another model" err_has '^sampling: temperature 0.6, '
printf '{"do_sample": false}' >"$beside"
talk "$work/with.gguf" ''
check "values beside a GGUF: do_sample false is greedy" err_has '^greedy decoding'
for bad in '{"temprature": 1}' '[1]' '{'; do
    printf '%s' "$bad" >"$beside"
    talk "$work/with.gguf" 'ab\n'
    check "values beside a GGUF: $bad is an error" status 2
    check "values beside a GGUF: the error names the file for $bad" err_has 'with.chat.json'
done
rm "$beside"
ln -s nowhere "$beside"
talk "$work/with.gguf" 'ab\n'
check "values beside a GGUF: a broken link is an error" status 2
check "values beside a GGUF: the error says so" err_has 'with.chat.json.*link'

# Off a terminal a reply ends at --reply-tokens, unless it has a limit of its own.
long() {
    last="kvik chat $* <<< ab"
    printf 'ab\n' | timeout -k 5 $patience "$KVIK" chat "$work/tiny" --greedy --suppress-tokens 2 "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
config '{"eos_token_id": 2}'
long --reply-tokens 9
check "--reply-tokens: the reply ends there" same "$(cat "$work/err")" "kvik: the reply ended after 9 tokens; --reply-tokens N allows more"
check "--reply-tokens: exit 0" status 0
cp "$work/out" "$work/nine"
long --reply-tokens 5 --max-new-tokens 9
check "--max-new-tokens wins without a word" err_empty
check "--max-new-tokens: the same text" cmp -s "$work/out" "$work/nine"
long --reply-tokens 5 --min-new-tokens 9
check "--min-new-tokens wins" err_has 'ended after 9 tokens'
long --reply-tokens 0
check "--reply-tokens 0: the reply ends at the context" err_has 'the reply ended at the model.s context of 256 tokens'
long --reply-tokens 0 --cache-implementation sink --cache-config '{"window_length": 64, "num_sink_tokens": 4}'
check "--reply-tokens 0 with sinks: nothing is said of --reply-tokens" sh -c "! grep -q 'reply-tokens' '$work/err'"
finish

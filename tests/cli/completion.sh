#!/bin/sh
# kvik completion: the scripts run in real shells, as functions and at a prompt; and the short and the long help.
. "$(dirname "$0")/lib.inc"
root=$PWD
mkdir -p "$work/bin" "$work/home/.cache/kvik" "$work/here/models" "$work/here/sub dir"
ln -s "$(realpath "$KVIK")" "$work/bin/kvik"
PATH=$work/bin:$PATH
export PATH
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME
export HOME="$work/home"
: >"$HOME/.cache/kvik/gemma-tiny.gguf"
: >"$HOME/.cache/kvik/\$(touch $(basename "$work")-ran).gguf"
: >"$work/here/local.gguf"
: >"$work/here/notes.txt"

run completion bash
check "bash: a script" out_has '^complete -F _kvik kvik$'
check "bash: nothing on stderr" err_empty
cp "$work/out" "$work/kvik.bash"
run completion zsh
check "zsh: a script" out_has '^#compdef kvik$'
cp "$work/out" "$work/_kvik"
run completion fish
refused "another shell" 2 "bash or zsh"
run completion
refused "no shell" 2 "bash or zsh"

# complete WORDS...: what bash offers for the last word, one a line.
cat >"$work/complete.bash" <<'B'
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_kvik
((${#COMPREPLY[@]})) && printf '%s\n' "${COMPREPLY[@]}"
exit 0
B
complete() {
    last="complete $*"
    (cd "$work/here" && bash "$work/complete.bash" "$work/kvik.bash" "$@") >"$work/out" 2>"$work/err"
    rc=$?
}
offers() { [ "$(tr '\n' ' ' <"$work/out")" = "$1 " ]; }
if command -v bash >/dev/null 2>&1; then
    check "bash reads the script" bash -n "$work/kvik.bash"
    complete kvik gen
    check "bash: a command" offers generate
    complete kvik r
    check "bash: kvik run too" offers "render rm run"
    complete kvik ""
    check "bash: every command" sh -c "for c in generate chat run inspect tokenize render bench eval plan models pull rm completion help; do grep -qx \$c '$work/out' || exit 1; done"
    complete kvik help ch
    check "bash: help CHAT" offers chat
    complete kvik generate --max-new
    check "bash: an option" offers --max-new-tokens
    complete kvik run --sess
    check "bash: kvik run has the options of chat" offers --session
    complete kvik inspect --arch
    check "bash: an option of inspect" offers --architectures
    complete kvik generate --cache-implementation offloaded_h
    check "bash: values" offers "offloaded_hybrid offloaded_hybrid_chunked"
    complete kvik generate --cache-implementation = off
    check "bash: --name=value" offers "offloaded offloaded_static offloaded_hybrid offloaded_hybrid_chunked"
    complete kvik generate --compute =
    check "bash: --name=" offers "exact fast"
    complete kvik render --template ge
    check "bash: a built-in format" offers gemma
    complete kvik render --template no
    check "bash: or a file" offers notes.txt
    complete kvik generate --max-new-tokens ""
    check "bash: no words for a number" out_empty
    complete kvik generate gem
    check "bash: a model of a cache" offers gemma-tiny.gguf
    last="complete ./kvik, without kvik in PATH"
    printf '%s\n' '#!/bin/sh' 'echo "typed $*"' >"$work/here/kvik"
    chmod +x "$work/here/kvik"
    complete ./kvik generate typ
    check "bash: ./kvik gives the models, as it was typed" offers 'typed\ models\ --names'
    complete short generate gem
    check "bash: an alias has those of kvik in PATH" offers gemma-tiny.gguf
    rm "$work/here/kvik"
    complete kvik generate lo
    check "bash: a model file" offers local.gguf
    complete kvik generate mo
    check "bash: a directory" offers models
    complete kvik chat notes
    check "bash: other files are no models" out_empty
    complete kvik generate --spill-dir "sub"
    check "bash: a directory with a space is one word" offers "sub dir"
    complete kvik completion z
    check "bash: shells" offers zsh
    complete kvik nonsense --x
    check "bash: an unknown command offers nothing" out_empty
    complete kvik generate '$('
    complete kvik generate ''
    check "bash: the name of a file is not run" sh -c "! ls '$work/here' '$root' | grep -q -- -ran"
    "$KVIK" generate --help-all | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | sort >"$work/want"
    complete kvik generate --
    sort "$work/out" >"$work/got"
    check "bash: every option of --help-all" cmp -s "$work/want" "$work/got"
else
    skip "bash is not installed"
fi

# At a prompt: types, presses Tab, and waits for what the shell writes.
cat >"$work/prompt.py" <<'PY'
import os, pty, select, sys, time
setup, keys, want, cwd = sys.argv[1], sys.argv[2], sys.argv[3].encode(), sys.argv[4]
pid, fd = pty.fork()
if pid == 0:
    os.chdir(cwd)
    os.environ.update(TERM="dumb", PS1="ready> ", PROMPT="ready> ", HISTFILE="")
    os.execvp(sys.argv[6], sys.argv[6:])
seen, phase, until = b"", 0, time.time() + float(sys.argv[5])
while time.time() < until:
    if select.select([fd], [], [], 0.1)[0]:
        try: data = os.read(fd, 65536)
        except OSError: break
        if not data: break
        seen += data
    if phase == 0 and b"ready>" in seen:
        os.write(fd, setup.encode() + b"; echo set''up\n")
        phase = 1
    elif phase == 1 and b"\nsetup" in seen and b"ready>" in seen[seen.index(b"\nsetup"):]:
        seen = b""
        os.write(fd, keys.encode())
        phase = 2
    elif phase == 2 and want in seen.replace(b"\r", b"").replace(b"\a", b""):
        os.kill(pid, 9)
        sys.exit(0)
print("  saw:", seen[-600:])
sys.exit(1)
PY
tab=$(printf '\t')
if has_pty; then
    if command -v bash >/dev/null 2>&1; then
        at() { check "bash at a prompt: $1" python3 "$work/prompt.py" "source '$work/kvik.bash'" "$2" "$3" "$work/here" $patience bash --norc --noprofile -i; }
        at "a command" "kvik gen$tab" "kvik generate "
        at "an option" "kvik chat --sess$tab" "kvik chat --session "
        at "a value behind =" "kvik generate --compute=ex$tab" "--compute=exact "
        at "a model" "kvik generate lo$tab" "local.gguf "
        printf '%s\n' '#!/bin/sh' 'echo typed.gguf' >"$work/here/kvik"
        chmod +x "$work/here/kvik"
        at "./kvik is asked for the models" "./kvik generate typ$tab" "typed.gguf"
        mkdir "$HOME/tree" && cp "$work/here/kvik" "$HOME/tree"
        at "and ~/tree/kvik" "~/tree/kvik generate typ$tab" "typed.gguf"
        rm "$work/here/kvik"
        at "a directory ends with a slash" "kvik generate mod$tab" "models/"
    fi
    if command -v zsh >/dev/null 2>&1; then
        check "zsh reads the script" zsh -n "$work/_kvik"
        last="zsh"
        at() { check "zsh at a prompt: $1" python3 "$work/prompt.py" "fpath=('$work' \$fpath); autoload -U compinit; compinit -u -D; unsetopt listbeep" "$2" "$3" "$work/here" $patience zsh -f -i; }
        at "a command" "kvik gen$tab" "kvik generate"
        at "kvik run" "kvik run --sess$tab" "kvik run --session"
        at "an option" "kvik generate --max-new$tab" "--max-new-tokens"
        at "a value" "kvik generate --compute ex$tab" "--compute exact"
        at "a built-in format" "kvik render --template vic$tab" "--template vicuna"
        at "a model of a cache" "kvik generate gem$tab" "gemma-tiny.gguf"
        at "a model file" "kvik generate lo$tab" "local.gguf"
        printf '%s\n' '#!/bin/sh' 'echo typed.gguf' >"$work/here/kvik"
        chmod +x "$work/here/kvik"
        at "./kvik is asked for the models" "./kvik generate typ$tab" "typed.gguf"
        at "an option of ./kvik" "./kvik generate --max-new$tab" "--max-new-tokens"
        rm "$work/here/kvik"
        at "a shell" "kvik completion ba$tab" "kvik completion bash"
        check "zsh at a prompt: the line for ~/.zshrc" python3 "$work/prompt.py" "autoload -U compinit; compinit -u -D; eval \"\$(kvik completion zsh)\"" "kvik run --sess$tab" "kvik run --session" "$work/here" $patience zsh -f -i
        check "zsh: the name of a file is not run" sh -c "! ls '$work/here' '$root' | grep -q -- -ran"
    else
        skip "the completion of zsh is not run: zsh is not installed"
    fi
fi

# Help: twenty-one options that matter, and the others with --help-all.
run generate --help
n=$(grep -c '^  --' "$work/out")
check "generate --help has twenty-one options, and two for help" same "$n" 23
for name in chat system template max-new-tokens do-sample temperature cache-implementation cache-config cache-memory threads; do
    check "--help has --$name" out_has "^  --$name "
done
check "--help names --help-all" out_has 'generate --help-all prints [0-9]* more options'
more=$(sed -n 's/.*--help-all prints \([0-9]*\) more.*/\1/p' "$work/out")
cp "$work/out" "$work/short"
run generate --help-all
check "--help-all has all" same "$(grep -c '^  --' "$work/out")" $((n + more))
check "--help-all has what --help has" sh -c "grep '^  --' '$work/short' | cut -d' ' -f3 | while read -r o; do grep -q -- \"^  \$o\" '$work/out' || exit 1; done"
run chat --help
check "chat --help is short too" [ "$(grep -c '^  --' "$work/out")" -le 25 ]
run help generate
check "kvik help generate is --help" cmp -s "$work/out" "$work/short"
run inspect --help-all
check "a command with few options takes --help-all too" out_has '^  --caches'
finish

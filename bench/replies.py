"""replies.py [--words FILE] [--show] MODEL [OPTION...] - judges the form of first replies of kvik chat.

Asks the greeting "Hello" with the seeds 1 to 40 and each question of bench/questions.txt with the seed 1, each in a chat of its
own, and counts the replies that break.  OPTIONs are those of kvik chat; without any the chat has its defaults.  --show prints
every reply.  A reply breaks if one of these is true:

  length      it has not ended within 512 tokens;
  loop        eight words in a row, or a line of four words and more, occur three times;
  words       a word is neither in the list of words (--words, that of Debian's wamerican-large), nor in the question,
              nor the name of a person or a place as its capital says; parts of hyphenated words and the plain form of an
              English ending (-s, -ed, -ing, -ly, -er, 's and their kin) count as words; "I's" and a capital behind a small letter
              do not;
  joined      letters stand behind a full stop without a blank;
  empty       it has no letter and no digit.

The rule sees form, not truth.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

LIMIT, SEEDS, RUN, TIMES = 512, 40, 8, 3
HERE = os.path.dirname(os.path.abspath(__file__))
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
CONTRACTED = re.compile(r"['’](?:s|t|re|ve|ll|d|m)$", re.I)
ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("ly", ""), ("er", ""),
           ("er", "e"), ("ness", ""), ("able", ""), ("able", "e"), ("ally", ""), ("ily", "y"), ("d", ""))
NEWER = {"chatbot", "chatbots", "cybersecurity", "inclusivity", "smollm", "wellbeing"}  # than that list
BEGINNINGS = ("un", "re", "non", "over", "under", "micro", "bio", "eco", "multi", "pre", "sub", "inter")


def known(word, words):
    if word in words or len(word) == 1:
        return True
    if any(word.endswith(end) and len(word) > len(end) + 2 and word[:-len(end)] + instead in words
           for end, instead in ENDINGS):
        return True
    doubled = re.fullmatch(r"(\w+?)(\w)\2(?:ed|ing|er)", word)
    if doubled and doubled[1] + doubled[2] in words:
        return True
    return any(word.startswith(b) and word[len(b):] in words for b in BEGINNINGS)


def strange(text, words):
    """Returns the words of a text that the rule does not know."""
    found = []
    for word in WORD.findall(text):
        low = word.lower().replace("’", "'")
        if low == "i's" or (re.search(r"[a-z][A-Z]", word) and low not in words):
            found.append(word)
            continue
        plain = CONTRACTED.sub("", low)
        name = word[0].isupper() and "'" not in plain
        if not (name or low in words or known(plain, words)):
            found.append(word)
    return found


def loops(text):
    words = text.split()
    runs = collections.Counter(tuple(words[i:i + RUN]) for i in range(len(words) - RUN + 1))
    lines = collections.Counter(line.strip() for line in text.splitlines() if len(line.split()) >= 4)
    return any(n >= TIMES for c in (runs, lines) for n in c.values())


def verdict(question, reply, tokens, words):
    if not re.search(r"[^\W_]", reply):
        return ["empty"]
    why = ["length"] * (tokens >= LIMIT) + ["loop"] * loops(reply)
    here = words | {w.lower() for w in WORD.findall(question)}
    odd = strange(reply, here)
    if odd:
        why.append("words: " + ", ".join(odd[:5]))
    joined = re.search(r"[a-z][.!?][A-Z][a-z]", reply)
    if joined:
        why.append("joined: " + joined[0])
    return why


def ask(model, options, question, seed):
    kvik = os.environ.get("KVIK", os.path.join(HERE, "..", "kvik"))
    command = [kvik, "run", model, "--max-new-tokens", str(LIMIT), "--cache-report", *options, "--seed", str(seed)]
    done = subprocess.run(command, input=question + "\n", capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout.strip(), int(re.search(r"; decode (\d+) token", done.stderr)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--words", default="/usr/share/dict/american-english-large")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("model")
    args, options = parser.parse_known_args()
    with open(args.words, encoding="utf-8") as f:
        words = NEWER | {w.strip().lower() for w in f}
    with open(os.path.join(HERE, "questions.txt"), encoding="utf-8") as f:
        questions = [q.strip() for q in f]
    sets = {"greetings": [("Hello", seed) for seed in range(1, SEEDS + 1)], "questions": [(q, 1) for q in questions]}
    for name, asked in sets.items():
        kinds, broken = collections.Counter(), 0
        for question, seed in asked:
            reply, tokens = ask(args.model, options, question, seed)
            why = verdict(question, reply, tokens, words)
            broken += bool(why)
            kinds.update({w.split(":")[0] for w in why})
            if args.show:
                print(f"--- {question} (seed {seed}, {tokens} tokens) {'; '.join(why) or 'good'}\n{reply}")
        by = ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
        print(f"{name}: {broken} of {len(asked)} break{f' ({by})' if by else ''}", flush=True)


if __name__ == "__main__":
    main()

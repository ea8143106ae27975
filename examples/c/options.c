/* options.c - prints the table of generation options as a page of Markdown (docs/OPTIONS.md is its output), or with "man" as a
 * section of the manual page.
 *     options [man] */
#include <kvik.h>
#include <stdio.h>
#include <string.h>

/* Returns what the option takes as a value, in words. */
static const char *values(const kvik_option *o, char text[64])
{
    static const char *const by_type[][2] = {
        {"bool", "true, false"},
        {"json", "an object"},
        {"schema", "a schema"},
        {"string", "a name"},
        {"strings", "a text or a list of texts"},
        {"ids", "a token or a list"},
        {"lists", "[[token, ...], ...]"},
        {"biases", "[[[token, ...], number], ...]"},
        {"pair", "[start, factor]"},
    };
    for (size_t i = 0; i < sizeof by_type / sizeof *by_type; i++)
        if (!strcmp(o->type, by_type[i][0])) return by_type[i][1];
    if (o->max < 1e6)
        snprintf(text, 64, "%g to %g", o->min, o->max);
    else
        snprintf(text, 64, "from %g", o->min);
    return text;
}

/* Prints "a|b|c" as "a, b, c". */
static void print_choices(const char *choices)
{
    for (; *choices; choices++)
        fputs(*choices == '|' ? ", " : (char[]){*choices, 0}, stdout);
}

static void print_markdown(const kvik_option *o)
{
    char text[64];
    printf("| `%s` | ", o->name);
    if (o->choices)
        print_choices(o->choices);
    else
        fputs(values(o, text), stdout);
    printf(" | %s | %s |\n", *o->fallback ? o->fallback : "-", o->help);
}

/* Prints an option for the manual page. The table has no backslashes or quotes; a dash begins an
 * option. */
static void print_man(const kvik_option *o)
{
    char text[64];
    fputs(".It Fl -", stdout);
    for (const char *c = o->name; *c; c++)
        putchar(*c == '_' ? '-' : *c);
    printf("\n%s\n.Pq ", o->help);
    if (o->choices)
        print_choices(o->choices);
    else
        fputs(values(o, text), stdout);
    printf(*o->fallback ? "; default %s\n" : "\n", o->fallback);
}

/* The options of a command of its own, which are no generation options. */
static const char transcribe[] =
    "\n# Options of kvik transcribe\n\n"
    "The options of every run (`kvik transcribe --help`) are possible too.\n\n"
    "| option | values | default | |\n|---|---|---|---|\n"
    "| `--language` | a name or a code | - | language of the recordings; none: that of each recording's first window |\n"
    "| `--task` | transcribe, translate | transcribe | write what is said, or translate it into English |\n"
    "| `--format` | text, json, srt, vtt | text | one line per segment; one object per recording; subtitles |\n"
    "| `--json` |  | - | the same as `--format json` |\n"
    "| `--output-dir` | a directory | - | a file for each recording: talk.txt, .json, .srt or .vtt; none: subtitles of several "
    "recordings lie beside them, all else goes to standard output |\n"
    "| `--overwrite` |  | - | replace files that are there already |\n"
    "| `--word-timestamps` |  | - | find the times of words; they are part of json and vtt |\n"
    "| `--return-timestamps` | true, false | true | false: without times of segments, for recordings of at most one window |\n"
    "| `--prompt` | a text | - | text that the recordings may continue: names and terms as they are spelled |\n"
    "| `--condition-on-prev-tokens` | true, false | false | show each window the text of those before it, unless that of the last was drawn at a temperature of 0.5 or more |\n"
    "| `--temperature` | 1 to 16 numbers | 0,0.2,0.4,0.6,0.8,1 | tried in turn until the text of a window is good enough; if none is, the last one stands |\n"
    "| `--num-beams` | 0 to 1024 | 1 | above 1: search each window at temperature 0 with this many beams |\n"
    "| `--length-penalty` | -1000 to 1000 | 1 | beams: divide scores by length to this power; above 0 favours longer texts |\n"
    "| `--early-stopping` | false, true, never | false | when a search with beams ends. true: when num-beams texts are complete; false: when a better one is unlikely; never: when a better one is impossible |\n"
    "| `--compression-ratio-threshold` | a number | 1.35 | try again if the text compresses better than this; 0: never |\n"
    "| `--logprob-threshold` | a number | -1 | try again if the mean log-probability of the tokens, the end included, is lower; 0: never |\n"
    "| `--no-speech-threshold` | a number | 0.6 | drop a text that logprob-threshold finds unlikely if nobody speaks with more than this probability; 0: never |\n"
    "| `--seed` | from 0 | 0 | seed of the draws at temperatures above 0 |\n";

int main(int argc, char **argv)
{
    bool man = argc > 1 && !strcmp(argv[1], "man");
    const kvik_option *o, *before = NULL;
    if (!man)
        puts(
            "# Generation options\n\n"
            "Made by `examples/c/options.c` from the table in `src/generate/options.c`; the names are those of Hugging Face\n"
            "Transformers. On the command line they have dashes; in `--generation-config` and `kvik_generation_set` they are\n"
            "keys of a JSON object, with `_` or `-`. A single option wins over a configuration, that over the model's\n"
            "generation_config.json, that over the defaults here.");
    for (uint32_t i = 0; (o = kvik_option_at(i)); before = o, i++) {
        bool first = !before || strcmp(o->group, before->group) != 0;
        if (first && man)
            printf("%s.Pp\n.Em %s\n.Bl -tag -width Ds\n", i ? ".El\n" : "", o->group);
        else if (first)
            printf("\n## %s\n\n| option | values | default | |\n|---|---|---|---|\n", o->group);
        (man ? print_man : print_markdown)(o);
    }
    if (man) puts(".El");
    if (!man) fputs(transcribe, stdout);
    return 0;
}

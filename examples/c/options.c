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
    return 0;
}

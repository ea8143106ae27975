/* wrap.h - wraps words of a text that is printed piece by piece, at the edge of the terminal. */
#pragma once
#include "cli/cli.h"

enum { WRAP_WORD = 256 };
struct wrap {
    FILE *to;
    unsigned width, col;  /* columns of the terminal; column of the cursor */
    char word[WRAP_WORD]; /* the word that ends at the cursor */
    size_t n_word;        /* bytes of the word; WRAP_WORD: it is too long to be moved */
    unsigned word_cols;   /* columns of the word */
    int ticks;        /* number of backticks at the beginning of the line; -1: other text came */
    bool code, fence; /* inside a code block; this line begins or ends one */
};
/* Begins a text at the left edge. */
void wrap_begin(struct wrap *w, FILE *to);
/* Prints a piece of the text, which has whole characters.  Lines of code blocks are not wrapped. */
void wrap_put(struct wrap *w, const char *text);
/* Prints a line of kvik's own.  On a terminal it breaks between words; elsewhere it stays one line. */
void wrap_line(FILE *to, const char *text);

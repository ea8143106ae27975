/* test_wrap.c - word wrap of streamed text.  Text goes through wrap_put in pieces of every size, and a small terminal shows
 * the result, which must not depend on the pieces. */
#include "cli/wrap.c"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS = 64, COLS = 128 };
static unsigned width = 30;

unsigned terminal_columns(FILE *of)
{
    (void)of;
    return width;
}

int screen_fd(FILE *f)
{
    return fileno(f);
}

bool screen_is_terminal(FILE *f)
{
    return isatty(fileno(f));
}

void screen_code(FILE *to, const char *code)
{
    fputs(code, to);
}

/* Returns what a terminal of `width` columns shows of the bytes: rows that end with '\n'.  The caller frees it. */
static char *show(const char *s, size_t n)
{
    static char cell[ROWS][COLS][8];
    unsigned row = 0, col = 0;
    size_t len;
    memset(cell, 0, sizeof cell);
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp = utf8_decode(s + i, n - i, &len);
        assert_true(row < ROWS && col < COLS);
        if (cp == '\n') {
            row++;
            col = 0;
        } else if (cp == '\b') {
            assert_true(col > 0);
            col--;
        } else if (cp == '\033') {
            assert_memory_equal(s + i, "\033[K", 3);
            len = 3;
            for (unsigned k = col; k < COLS; k++)
                cell[row][k][0] = 0;
        } else if (cp == '\t') {
            for (unsigned to = (col / 8 + 1) * 8; col < to; col++)
                strcpy(cell[row][col], " ");
        } else {
            int wide = wcwidth((wchar_t)cp);
            assert_true(wide >= 0);
            if (col + (unsigned)wide > width) {
                row++;
                col = 0;
            }
            char *c = cell[row][wide ? col : col - 1];
            memcpy(c + (wide ? 0 : strlen(c)), s + i, len);
            c[wide ? len : strlen(c)] = 0;
            if (wide == 2) strcpy(cell[row][col + 1], "\1"); /* no cell of its own */
            col += (unsigned)wide;
        }
    }
    char *out = calloc(1, ROWS * COLS * 8), *to = out;
    for (unsigned r = 0; r <= row; r++) {
        for (unsigned c = 0; c < COLS && cell[r][c][0]; c++)
            to += cell[r][c][0] == '\1' ? 0 : sprintf(to, "%s", cell[r][c]);
        *to++ = '\n';
    }
    return out;
}

/* Prints the text in pieces of `piece` characters. */
static char *wrapped(const char *text, size_t piece)
{
    struct wrap w;
    char *bytes = NULL;
    size_t n = 0, at = 0, all = strlen(text), len;
    FILE *to = open_memstream(&bytes, &n);
    wrap_begin(&w, to);
    while (at < all) {
        size_t end = at;
        for (size_t k = 0; k < piece && end < all; k++, end += len)
            utf8_decode(text + end, all - end, &len);
        char *part = strndup(text + at, end - at);
        wrap_put(&w, part);
        free(part);
        at = end;
    }
    fclose(to);
    char *shown = show(bytes, n);
    free(bytes);
    return shown;
}

static void expect(unsigned columns, const char *text, const char *want)
{
    width = columns;
    for (size_t piece = 1; piece <= 9; piece++) {
        char *got = wrapped(text, piece);
        assert_string_equal(got, want);
        free(got);
    }
}

static void test_words(void **state)
{
    (void)state;
    expect(30, "Felix loved to visit the village of Elmwood, every day.\nAnd so on.",
           "Felix loved to visit the \nvillage of Elmwood, every \nday.\nAnd so on.\n");
    expect(24, "abcdefghij abcdefghijkl abc", "abcdefghij abcdefghijkl\nabc\n");
    expect(24, "abcdefghij abcdefghijklm abc", "abcdefghij \nabcdefghijklm abc\n");
    expect(24, "abcdefghij abcdefghijkl  two", "abcdefghij abcdefghijkl\ntwo\n");
    expect(24, "abcdefghij abcdefghijkl\n\n- a\n", "abcdefghij abcdefghijkl\n\n- a\n\n");
    expect(10, "too narrow to wrap", "too narrow\n to wrap\n");
}

/* A word that is longer than a line stays in one piece for the terminal, which breaks it. */
static void test_long_words(void **state)
{
    (void)state;
    expect(24, "see https://example.org/a/very/long/address now",
           "see \nhttps://example.org/a/ve\nry/long/address now\n");
    expect(24, "see https://example.org/a/very/long/address and then others",
           "see \nhttps://example.org/a/ve\nry/long/address and \nthen others\n");
}

/* Lines of code are left to the terminal, and text behind them is wrapped again. */
static void test_code(void **state)
{
    (void)state;
    expect(
        24, "Text:\n```c\nint main(int argc, char **argv)\n```\nand then words are wrapped again",
        "Text:\n```c\nint main(int argc, char \n**argv)\n```\nand then words are \nwrapped again\n");
    expect(24, "  ```\n\tindented code line of two\n  ```\nwords that must be wrapped",
           "  ```\n        indented code li\nne of two\n  ```\nwords that must be \nwrapped\n");
    expect(24, "some `code` with ``` inside of a line wraps",
           "some `code` with ``` \ninside of a line wraps\n");
}

static void test_wide(void **state)
{
    (void)state;
    expect(24, "漢字漢字漢字漢字漢字漢字漢字", "漢字漢字漢字漢字漢字漢\n字漢字\n");
    expect(24, "漢字漢字漢字漢字漢字漢。字漢字", "漢字漢字漢字漢字漢字\n漢。字漢字\n");
    expect(24, "漢字漢字漢字漢字漢字 word", "漢字漢字漢字漢字漢字 \nword\n");
    expect(24, "Straße für Größe Äpfel Öl", "Straße für Größe Äpfel \nÖl\n");
    expect(24, "cafe\xCC\x81 cafe\xCC\x81 cafe\xCC\x81 cafe\xCC\x81 cafe\xCC\x81",
           "cafe\xCC\x81 cafe\xCC\x81 cafe\xCC\x81 cafe\xCC\x81 \ncafe\xCC\x81\n");
}

/* A model cannot send codes to the terminal. */
static void test_codes(void **state)
{
    (void)state;
    expect(30, "a\033[2Jb\r\n\x07\xC2\x9B!", "a\xEF\xBF\xBD[2Jb\n\xEF\xBF\xBD\xEF\xBF\xBD!\n");
}

/* After a change of the width nothing is erased that the terminal may have moved. */
static void test_resize(void **state)
{
    (void)state;
    struct wrap w;
    char *bytes = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&bytes, &n);
    width = 40;
    wrap_begin(&w, to);
    wrap_put(&w, "one two three four five six seve");
    width = 24;
    wrap_put(&w, "n eight nine ten eleven twelve");
    fclose(to);
    const char *seven = strstr(bytes, "seven eight"), *erased = strchr(bytes, '\b');
    assert_non_null(seven);
    assert_true(!erased || erased > seven);
    assert_non_null(strchr(bytes, '\n'));
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words), cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_code),  cmocka_unit_test(test_wide),
        cmocka_unit_test(test_codes), cmocka_unit_test(test_resize),
    };
    if (!setlocale(LC_CTYPE, "C.UTF-8")) return 99;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

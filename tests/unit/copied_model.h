/* copied_model.h - copies of a small model whose weights differ by one byte, as those of a fine-tune may. */
#pragma once
#include "base/file.h"
#include "testing.h"

#include <stdio.h>
#include <sys/stat.h>

/* Copies the directory of a model.  change: 0, or the place of a byte that becomes another one, from the end of the weights. */
static void copy_model(const char *from, const char *to, size_t change)
{
    static const char *const part[] = {"config.json", "model.safetensors"};
    char path[300], *data;
    size_t n;
    (void)mkdir(to, 0700);
    for (size_t i = 0; i < countof(part); i++) {
        snprintf(path, sizeof path, "%s/%s", from, part[i]);
        assert_int_equal(file_read(path, 64 << 20, &data, &n), 0);
        if (i && change) data[n - change] ^= 1;
        snprintf(path, sizeof path, "%s/%s", to, part[i]);
        assert_int_equal(file_write(path, data, n), 0);
        mem_free(data);
    }
}

/* hidden.h - what tests ask the device of tests/hidden, and what they make it do.  All of it is about all devices together. */
#pragma once
#include "base/base.h"

/* Returns the bytes of its memory that are in use: neither closed nor of a closed queue or device. */
size_t hidden_bytes(void);
/* Returns how many weights were brought to the device so far. */
uint32_t hidden_uploads(void);
/* Return the bytes of pages of ranges: in use now, and given back so far. */
size_t hidden_range_bytes(void);
size_t hidden_given_back(void);
/* Returns how many operations have run while a copy was under way. */
uint64_t hidden_beside(void);
/* Returns the bytes of memory of the host that are pinned. */
size_t hidden_pinned(void);
/* Makes the k-th operation or copy from now on fail; 0: none. */
void hidden_fail(uint32_t k);
/* True if that operation has not come yet. */
bool hidden_failing(void);
/* The device has no kernels for this codec; NULL: it has them for all. */
void hidden_lacks(const char *codec);

/* hidden.h - what tests ask the device of tests/hidden. */
#pragma once
#include "base/base.h"

/* Returns the bytes of its memory, of all devices, that are in use: neither closed nor of a closed device. */
size_t hidden_bytes(void);

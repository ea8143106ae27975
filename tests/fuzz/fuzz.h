/* fuzz.h - the contract of a fuzz target: one function, driven by libFuzzer or by replay.c. */
#pragma once
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

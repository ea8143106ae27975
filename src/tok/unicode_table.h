#pragma once
static const uint32_t uni_new[][2] = {{0x10FFFF,0x10FFFF}};
static const uint32_t uni_new_as[] = {0x10FFFF};
static const uint32_t uni_word_flip[][2] = {{0x10FFFF,0x10FFFF}};
static const uint32_t uni_numeric_flip[][2] = {{0x10FFFF,0x10FFFF}};
static const uint32_t uni_punct_flip[][2] = {{0x10FFFF,0x10FFFF}};
static const uint32_t uni_inert[][2] = {{0x10FFFF,0x10FFFF}};
static const uint32_t uni_lower_fix[][3] = {{0x10FFFF,0x10FFFF,0}};

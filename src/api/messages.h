/* messages.h - the messages of a conversation as JSON. */
#pragma once
#include "base/json.h"
#include "kvik.h"

/* Makes the array of n messages that chat templates take. */
int messages_of(const kvik_message *message, size_t n, json_t **out);

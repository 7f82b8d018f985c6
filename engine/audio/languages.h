// languages.h - the languages Whisper knows, in the order of their tokens. The look-ups by code and by name are in
// engine.h.
#pragma once

enum { LANGUAGES = 100 };

const char *engine_language_at(int i);  // code ("en"); NULL past the last

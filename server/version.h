// version.h - the release, as --version, /version and the Server header give it.
#pragma once

#define VERSION "0.1.0"

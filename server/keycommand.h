// keycommand.h - `oxinferd key`: makes, lists and removes API keys in the store or the key file of the settings.
#pragma once

// add NAME [--weight W] [--class C] [--rpm N] [--tpm N] [--concurrent N] [--models A,B] [--group G] [--expires WHEN] [--admin]
// list | rm NAME; and settings (--store, --api-key-file, --config ...). The store is used when both are set. Returns the
// exit status. A running daemon takes changes over with SIGHUP.
int keycommand_run(int nargs, char **args);

// modelcommand.h - oxinferd pull, list, show NAME and rm: the model store from the command line. Exit statuses as in
// main.c.
//
// What scripts read goes to standard output (--json: JSON), progress and reasons to standard error.
#pragma once

int modelcommand_pull(int nargs, char **args);
int modelcommand_list(int nargs, char **args);
int modelcommand_rm(int nargs, char **args);
int modelcommand_show(int nargs, char **args);  // of a model in the store

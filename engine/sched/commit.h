// commit.h - what a computed step brings: pages are published, tokens sampled, rounds end. Scheduler thread.
#pragma once

#include "engine/sched/served.h"

void commit_step(struct served *m);

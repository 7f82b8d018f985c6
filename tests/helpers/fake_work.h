// fake_work.h - the works of the fake model, for fake_model.c.
#pragma once

#include "engine/sched/work.h"

extern const struct work_ops fake_embed, fake_speak;

void fake_work_set_cost(double step_s);

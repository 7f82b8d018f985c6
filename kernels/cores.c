// cores.c - which of a team's cores take part; see cores.h. Owned by the thread that calls team_run.
#include "kernels/cores.h"

#include <string.h>

void cores_init(struct cores *c, int count)
{
    memset(c, 0, sizeof *c);
    c->count = count;
    for (int i = 0; i < count; i++)
        c->core[i].pause_ns = CORES_PAUSE_NS;
}

int cores_active(const struct cores *c, int *ret_list)
{
    int n = 0;
    for (int i = 0; i < c->count; i++) {
        if (!c->core[i].out)
            ret_list[n++] = i;
    }
    return n;
}

// All lanes wait for the slowest: n of them that one robs of a share s do n (1 - s), the others alone n - 1. A lane
// more is worth less than a whole one (they share the memory), hence the fifth; and noise is no neighbour, hence the
// floor.
static int64_t limit(const struct cores *c)
{
    int64_t share = c->wall_ns * 4 / 5 / (c->count - c->left_out), floor = c->wall_ns / 10;
    return share > floor ? share : floor;
}

static void leave(struct cores *c, struct core *k, int64_t now)
{
    bool again = k->in_since && now - k->in_since < CORES_STAY_NS;
    k->pause_ns = !again ? CORES_PAUSE_NS : k->pause_ns < CORES_LONGEST_NS ? 2 * k->pause_ns : CORES_LONGEST_NS;
    k->probe_at = now + k->pause_ns;
    k->out = true;
    c->left_out++;
}

// What every lane loses alike (a quota of the whole cgroup, a hypervisor) is nobody's core, and the least of them
// counts as that. So the core that lost least always stays.
static void look(struct cores *c, int64_t now)
{
    int64_t least = INT64_MAX, most = limit(c);
    for (int i = 0; i < c->count; i++) {
        if (!c->core[i].out && c->core[i].lost_ns < least)
            least = c->core[i].lost_ns;
    }
    for (int i = 0; i < c->count; i++) {
        struct core *k = &c->core[i];
        if (!k->out && k->lost_ns - least > most)
            leave(c, k, now);
        k->lost_ns = 0;
    }
    c->wall_ns = 0;
}

void cores_ran(struct cores *c, int64_t now, int64_t wall_ns, const int64_t *lost_ns)
{
    c->wall_ns += wall_ns;
    for (int i = 0; i < c->count; i++) {
        if (!c->core[i].out && lost_ns[i] > 0)
            c->core[i].lost_ns += lost_ns[i];
    }
    if (c->wall_ns >= CORES_WINDOW_NS)
        look(c, now);
}

bool cores_wants_probe(struct cores *c, int i, int64_t now)
{
    struct core *k = &c->core[i];
    if (!k->out || k->probing || now < k->probe_at)
        return false;
    return k->probing = true;
}

void cores_probed(struct cores *c, int i, int64_t now, bool is_free)
{
    struct core *k = &c->core[i];
    k->probing = false;
    if (!k->out)
        return;
    k->probe_at = now + k->pause_ns;
    if (is_free) {
        k->out = false;
        k->in_since = now;
        k->lost_ns = 0;
        c->left_out--;
    }
}

// winograd.h - the one-dimensional transforms of Winograd's F(4,3) with the points 0, +-5/8, +-3/2 and infinity, whose
// rounding errors are a third of those of the usual points (Lavin and Gray 2015; Barabasz et al. 2020). Both the scalar
// and the SIMD file include it after defining
//
//     WINO                       the number type: float, or a vector of them
//     WINO_FUNC                  how its functions are declared
//     w_set(f) w_add(a, b) w_sub(a, b) w_mul(a, b) w_fma(a, b, c) w_fnma(a, b, c) = c - a b
//
// so that every instruction set computes the same operations in the same order.
#if defined(WINO)  // nothing for who does not define them

#define WINO_A 0.625f
#define WINO_B 1.5f
#define WINO_A2 0.390625f
#define WINO_B2 2.25f
#define WINO_A2B2 0.87890625f
#define WINO_SUM 2.640625f                                // A2 + B2
#define WINO_CA (1.0f / (2 * WINO_A2 * (WINO_A2 - WINO_B2)))
#define WINO_CB (1.0f / (2 * WINO_B2 * (WINO_B2 - WINO_A2)))

// d and v with a step of s elements.
WINO_FUNC void wino_input(WINO *v, const WINO *d, int s)
{
    const WINO a = w_set(WINO_A), b = w_set(WINO_B), a2 = w_set(WINO_A2), b2 = w_set(WINO_B2), ab = w_set(WINO_A2B2);
    const WINO sum = w_set(WINO_SUM);
    WINO d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
    WINO p = w_fnma(b2, d2, d4), q = w_fnma(b2, d1, d3), r = w_fnma(a2, d2, d4), t = w_fnma(a2, d1, d3);
    v[0] = w_fma(ab, d0, w_fnma(sum, d2, d4));
    v[s] = w_fma(a, q, p);
    v[2 * s] = w_fnma(a, q, p);
    v[3 * s] = w_fma(b, t, r);
    v[4 * s] = w_fnma(b, t, r);
    v[5 * s] = w_fma(ab, d1, w_fnma(sum, d3, d5));
}

WINO_FUNC void wino_weights(WINO *u, int us, const WINO *g, int gs)
{
    const WINO a = w_set(WINO_A), b = w_set(WINO_B), a2 = w_set(WINO_A2), b2 = w_set(WINO_B2);
    const WINO ca = w_set(WINO_CA), cb = w_set(WINO_CB);
    WINO g0 = g[0], g1 = g[gs], g2 = g[2 * gs], p = w_fma(a2, g2, g0), q = w_fma(b2, g2, g0);
    u[0] = w_mul(g0, w_set(1.0f / WINO_A2B2));
    u[us] = w_mul(w_fma(a, g1, p), ca);
    u[2 * us] = w_mul(w_fnma(a, g1, p), ca);
    u[3 * us] = w_mul(w_fma(b, g1, q), cb);
    u[4 * us] = w_mul(w_fnma(b, g1, q), cb);
    u[5 * us] = g2;
}

WINO_FUNC void wino_output(WINO *y, int ys, const WINO *m, int ms)
{
    const WINO a = w_set(WINO_A), b = w_set(WINO_B), a2 = w_set(WINO_A2), b2 = w_set(WINO_B2);
    const WINO a3 = w_set(WINO_A2 * WINO_A), b3 = w_set(WINO_B2 * WINO_B);
    WINO p = w_add(m[ms], m[2 * ms]), r = w_sub(m[ms], m[2 * ms]);
    WINO q = w_add(m[3 * ms], m[4 * ms]), t = w_sub(m[3 * ms], m[4 * ms]);
    y[0] = w_add(m[0], w_add(p, q));
    y[ys] = w_fma(a, r, w_mul(b, t));
    y[2 * ys] = w_fma(a2, p, w_mul(b2, q));
    y[3 * ys] = w_fma(a3, r, w_fma(b3, t, m[5 * ms]));
}

#endif

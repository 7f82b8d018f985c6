// networks.h - the three networks of a Stable Diffusion pipeline: CLIP's text encoder, the UNet, the VAE's decoder.
//
//     clip_open(part->weights, ops, threads, &clip, &part->packed, &e);          // likewise unet_open, vae_open
//
//     struct net *net;                                     // one network laid out for one size, with all its memory
//     unet_plan(unet, h, w, 2, lanes, &net, &e);
//     for each denoise step:
//         unet_start(net, x, timestep, states, out);       // scheduler thread; only notes the pointers
//         while (!net_step(net, lane, work)) ...           // every lane, one call a step of the work
//     net_free(net);
//
// A net is a list of small operations over its own buffers. net_step goes on where the last call stopped and returns when
// work_slice says so; every lane gets the same answer. Pointers given to *_start must stay valid until net_step returned
// true; a net may be started again after that (or dropped at any time between two steps). Everything is f32.
// Numbers never depend on lanes, on where a forward was cut, or on the other images of the batch.
//
// Shapes are PyTorch's: latents [n][channels][h][w], text states [n][77][dim]. Nets of one network may run side by side.
// Owner: the structs opened here borrow from *ret_packed (and from weights), which must outlive them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/blocks/packed.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

struct weights;
struct work;
struct net;

size_t net_bytes(const struct net *n);  // all it holds
// work may be NULL: then to the end. True: the output is complete.
bool net_step(struct net *n, struct lane *lane, struct work *work);
void net_free(struct net *n);

// Opening. Errors: ERR_CORRUPT (a tensor is missing or has another shape: named), ERR_UNSUPPORTED (a block, activation or
// option of the configuration that is not built: named).

// ---- text encoder (transformers CLIPTextModel). States are the last layer's, after final_layer_norm.
struct clip;
struct clip_info {
    int dim, positions, vocab;   // 768 or 1024, 77, 49408
    int32_t bos, eos, pad;       // of config.json; the tokenizer's files have the last word
};
MUST_CHECK err_code clip_open(const struct weights *w, const struct cpu_ops *ops, int load_threads,
                              struct clip **ret_clip, struct packed **ret_packed, err *e);
void clip_close(struct clip *c);
const struct clip_info *clip_info(const struct clip *c);
MUST_CHECK err_code clip_plan(const struct clip *c, int n, int lanes, struct net **ret_net, err *e);
// ids [n][positions], each in [0, vocab); out [n][positions][dim].
void clip_start(struct net *net, const int32_t *ids, float *out);

// ---- UNet (diffusers UNet2DConditionModel)
struct unet;
struct unet_info {
    int in_channels, out_channels;  // 4, 4
    int context;                    // text state width
    int sample_size;                // latents of the native image side: 64, 96
};
MUST_CHECK err_code unet_open(const struct weights *w, const struct cpu_ops *ops, int load_threads,
                              struct unet **ret_unet, struct packed **ret_packed, err *e);
void unet_close(struct unet *u);
const struct unet_info *unet_info(const struct unet *u);
// Any h, w >= 1 (of latents); n images in one batch (2 with guidance); tokens: text positions, 77.
size_t unet_bytes(const struct unet *u, int h, int w, int n, int tokens, int lanes);
MUST_CHECK err_code unet_plan(const struct unet *u, int h, int w, int n, int tokens, int lanes, struct net **ret_net,
                              err *e);
// x [n][in_channels][h][w], already scaled for the model; states [n][tokens][context]; out [n][out_channels][h][w].
void unet_start(struct net *net, const float *x, float timestep, const float *states, float *out);

// ---- VAE decoder (diffusers AutoencoderKL; an older file's attention names too)
struct vae;
struct vae_info {
    int latent_channels, out_channels;  // 4, 3
    int factor;                         // pixels a latent: 8
    float scaling_factor;               // 0.18215
};
MUST_CHECK err_code vae_open(const struct weights *w, const struct cpu_ops *ops, int load_threads,
                             struct vae **ret_vae, struct packed **ret_packed, err *e);
void vae_close(struct vae *v);
const struct vae_info *vae_info(const struct vae *v);
size_t vae_bytes(const struct vae *v, int h, int w, int lanes);
// One image; h, w of the latents.
MUST_CHECK err_code vae_plan(const struct vae *v, int h, int w, int lanes, struct net **ret_net, err *e);
// latents [latent_channels][h][w] as the denoiser left them (divided by scaling_factor here);
// pixels [out_channels][h * factor][w * factor] = decoded * 0.5 + 0.5, not clamped.
void vae_start(struct net *net, const float *latents, float *pixels);

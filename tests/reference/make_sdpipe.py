#!/usr/bin/env python3
"""What diffusers' schedulers and pipelines and the CLIP tokenizer make of given inputs.

    python3 tests/reference/make_sdpipe.py [schedules|tokenizer|pipelines]   writes tests/fixtures/sd/*.json, *.bin

Needs torch, transformers, diffusers and numpy. Run make_sdnet.py first: the pipelines are its tiny ones.

cases/NAME.json is what `oxinferd image-check` reads, with NAME.latents and NAME.noise; NAME.out holds diffusers' final
latents (f32), NAME.rgb its picture in bytes.

schedules.json: every scheduler with every spacing and prediction type, on eight numbers and a toy denoiser
    out = 0.8 x / (1 + |x|) + 0.1 cos(t / 100)
that both sides compute; noise of step i is row i of "noise".
"""
import json
import os
import sys
import warnings

import diffusers
import numpy as np
import torch

warnings.filterwarnings("ignore")
diffusers.utils.logging.set_verbosity_error()
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "sd")
torch.set_num_threads(1)
N = 8


def dump(name, value):
    def leaf(x):
        return isinstance(x, list) and not any(isinstance(y, (list, dict)) for y in x)
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(
            f"{json.dumps(k)}:" + ("[\n" + ",\n".join(json.dumps(i, separators=(",", ":")) for i in v) + "]"
                                   if isinstance(v, list) and not leaf(v) else json.dumps(v, separators=(",", ":")))
            for k, v in value.items()) + "\n}\n")


class Noise:
    """Stands in for the random numbers of a scheduler: row i for step i."""
    def __init__(self, rows):
        self.rows, self.step = rows, 0

    def __call__(self, shape, **_):
        self.step += 1
        return self.rows[self.step - 1].reshape(shape)


def with_noise(noise):
    import diffusers.schedulers.scheduling_dpmsolver_multistep as dpm
    import diffusers.schedulers.scheduling_euler_ancestral_discrete as ancestral
    dpm.randn_tensor = ancestral.randn_tensor = noise


def denoise(scheduler, steps, latents, noise, model):
    with_noise(Noise(noise))
    scheduler.set_timesteps(steps)
    x = latents * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        out = model(scheduler.scale_model_input(x, t), t)
        x = scheduler.step(out, t, x, return_dict=False)[0]
    return x


def toy(x, t):
    return 0.8 * x / (1 + x.abs()) + 0.1 * np.cos(float(t) / 100)


def schedule_cases():
    sd = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    names = ["EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DDIMScheduler", "PNDMScheduler",
             "DPMSolverMultistepScheduler"]
    for name in names:
        for spacing in ("leading", "trailing", "linspace"):
            for prediction in ("epsilon", "v_prediction"):
                for steps in (1, 7, 30):
                    c = {"_class_name": name, **sd, "timestep_spacing": spacing, "prediction_type": prediction,
                         "steps_offset": 1}
                    if name == "PNDMScheduler":
                        c["skip_prk_steps"] = True
                    if name == "DDIMScheduler":
                        c["clip_sample"] = False
                        c["set_alpha_to_one"] = steps == 7
                    yield c, steps
    euler, ddim, pndm, dpm = names[0], names[2], names[3], names[4]
    for spacing in ("leading", "trailing", "linspace"):
        for prediction in ("epsilon", "v_prediction"):
            yield {"_class_name": pndm, **sd, "timestep_spacing": spacing, "prediction_type": prediction}, 9
        yield {"_class_name": euler, **sd, "use_karras_sigmas": True, "timestep_spacing": spacing}, 11
        yield {"_class_name": dpm, **sd, "use_karras_sigmas": True, "timestep_spacing": spacing}, 25
        yield {"_class_name": dpm, **sd, "final_sigmas_type": "sigma_min", "timestep_spacing": spacing}, 12
        yield {"_class_name": dpm, **sd, "final_sigmas_type": "sigma_min", "timestep_spacing": spacing}, 16
        yield {"_class_name": dpm, **sd, "algorithm_type": "sde-dpmsolver++", "timestep_spacing": spacing}, 10
    yield {"_class_name": pndm, **sd, "set_alpha_to_one": True}, 4
    yield {"_class_name": euler, **sd, "use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 10.0}, 6
    yield {"_class_name": euler, **sd, "final_sigmas_type": "sigma_min"}, 6
    yield {"_class_name": euler, **sd, "prediction_type": "sample"}, 5
    yield {"_class_name": euler, **sd, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction",
           "timestep_spacing": "trailing"}, 8
    yield {"_class_name": ddim, **sd, "rescale_betas_zero_snr": True, "prediction_type": "v_prediction",
           "timestep_spacing": "trailing", "clip_sample": False}, 8
    yield {"_class_name": ddim, **sd}, 20
    yield {"_class_name": ddim, "clip_sample_range": 0.7, "set_alpha_to_one": False, "prediction_type": "sample"}, 20
    yield {"_class_name": ddim, "beta_schedule": "squaredcos_cap_v2", "clip_sample": False}, 15
    yield {"_class_name": dpm, **sd, "solver_type": "heun"}, 20
    yield {"_class_name": dpm, **sd, "solver_type": "heun", "algorithm_type": "sde-dpmsolver++"}, 20
    yield {"_class_name": dpm, **sd, "solver_order": 1}, 8
    yield {"_class_name": dpm, **sd, "euler_at_final": True, "final_sigmas_type": "sigma_min"}, 20
    yield {"_class_name": dpm, **sd, "lower_order_final": False}, 6
    yield {"_class_name": dpm, "beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}, 12
    yield {"_class_name": euler, "num_train_timesteps": 400, "beta_schedule": "linear"}, 50
    for steps in (3, 13, 49, 50):
        yield {"_class_name": euler, **sd, "timestep_spacing": "trailing"}, steps
        yield {"_class_name": dpm, **sd, "timestep_spacing": "trailing"}, steps
        yield {"_class_name": pndm, **sd, "skip_prk_steps": True, "timestep_spacing": "trailing"}, steps


def schedules():
    g = torch.Generator().manual_seed(3)
    latents, noise = torch.randn(N, generator=g), torch.randn((51, N), generator=g)
    cases = []
    for config, steps in schedule_cases():
        kind = getattr(diffusers, config["_class_name"])
        s = kind.from_config({k: v for k, v in config.items() if k != "_class_name"})
        x = denoise(s, steps, latents, noise, toy)
        assert torch.isfinite(x).all(), (config, steps)
        cases.append({"config": config, "steps": steps, "timesteps": s.timesteps.tolist(),
                      "initial": float(s.init_noise_sigma), "final": x.tolist()})
    dump("schedules.json", {"latents": latents.tolist(), "noise": noise.tolist(), "cases": cases})


TEXTS = [
    "", " ", "a", "A Photo of an ASTRONAUT riding a Horse", "a photo  of\tthe\n\nsea", "it's they'll I'd we've you're 'm 't",
    "hello!", "!", "!!", "a!b !! c!", "50mm f/1.8, 8k, (highly detailed:1.2) [blurry]", "1234567890", "a1b22c333",
    "\u00c9t\u00e9 na\u00efve caf\u00e9 \u00fcber \u00d1and\u00fa", "e\u0301te\u0301 A\u030angstro\u0308m", "\u0130stanbul \u1e9e \u03a3\u0399\u03a3\u03a5\u03a6\u039f\u03a3",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 cat \U0001f408", "\u65e5\u672c\u8a9e\u306e\u732b \u4e2d\u6587", "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u043a\u043e\u0442", "\u0e44\u0e17\u0e22",
    "<|startoftext|>a<|endoftext|>b", "<|endoftext|>", "<b>bold</b> &amp; &lt;", "under_score __x__ -dash--", "tab\ttab",
    "\u00a0nbsp\u3000wide\u2003em", "\u200bzero\ufeffwidth", "a" * 50, "\u2160\u2161 \u00bd \u00b2", "x\u0000y", "\u201cquotes\u201d \u2018it\u2019s\u2019",
]


def tokenizer():
    from transformers import CLIPTokenizer
    cases = []
    for model in ("tiny-sd1", "tiny-sd2"):
        t = CLIPTokenizer.from_pretrained(os.path.join(OUT, model, "tokenizer"))
        for text in TEXTS:
            cases.append({"model": model, "text": text, "ids": t(text, add_special_tokens=False).input_ids})
        long = "the cat and the dog, " * 30
        for text in ("the cat", "", long, " ".join(["cat"] * 75), " ".join(["cat"] * 76), "!"):
            padded = t(text, padding="max_length", max_length=77, truncation=True).input_ids
            cases.append({"model": model, "text": text, "padded": padded})
    dump("tokenizer.json", {"cases": cases})


LONG = "a painting of the small red house by the sea at night, " * 12
PIPELINES = [
    # name, model, prompt, negative prompt, steps, guidance, width, height, scheduler, its config
    ("own-ancestral", "tiny-sd1", "a photo of an astronaut riding a horse", "blurry, low quality", 4, 7.5, 64, 64, None, None),
    ("no-guidance", "tiny-sd1", "the cat in a garden", None, 5, 1.0, 48, 72, "EulerDiscreteScheduler", None),
    ("ddim", "tiny-sd1", "", "", 6, 3.0, 64, 40, "DDIMScheduler", {"clip_sample": False, "set_alpha_to_one": False}),
    ("pndm", "tiny-sd1", LONG, LONG, 5, 5.0, 40, 40, "PNDMScheduler", {"skip_prk_steps": True}),
    ("karras", "tiny-sd1", "Mountain LANDSCAPE, \u00e9t\u00e9 \U0001f408!", "trees", 6, 4.0, 56, 64, "DPMSolverMultistepScheduler",
     {"use_karras_sigmas": True, "timestep_spacing": "linspace"}),
    ("turbo", "tiny-sd1", "the moon", None, 1, 0.0, 64, 64, "EulerDiscreteScheduler", {"timestep_spacing": "trailing"}),
    ("own-v", "tiny-sd2", "a river in the morning light", "", 5, 7.5, 96, 96, None, None),
    ("v-odd", "tiny-sd2", "the dog! highly detailed!!", "blurry", 4, 6.0, 40, 56, "DPMSolverMultistepScheduler", None),
    ("v-ancestral", "tiny-sd2", "oil painting", None, 5, 2.0, 8, 24, "EulerAncestralDiscreteScheduler",
     {"timestep_spacing": "trailing"}),
    ("odd", "tiny-odd", "a river", "blurry", 3, 4.0, 24, 40, None, None),
]


def run_pipeline(name, model, prompt, negative, steps, guidance, width, height, scheduler, config, seed):
    folder = os.path.join(OUT, "cases")
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(os.path.join(OUT, model), torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    kind = getattr(diffusers, scheduler) if scheduler else type(pipe.scheduler)
    with open(os.path.join(OUT, model, "scheduler", "scheduler_config.json"), encoding="utf-8") as f:
        own = {k: v for k, v in json.load(f).items() if not k.startswith("_")}
    pipe.scheduler = kind.from_config({**own, **(config or {})})
    g = torch.Generator().manual_seed(seed)
    factor = pipe.vae_scale_factor
    shape = (pipe.unet.config.in_channels, height // factor, width // factor)
    latents, noise = torch.randn(shape, generator=g), torch.randn((steps, *shape), generator=g)
    with_noise(Noise(noise))
    with torch.no_grad():
        out = pipe(prompt, height, width, num_inference_steps=steps, guidance_scale=guidance, negative_prompt=negative,
                   latents=latents[None].clone(), output_type="latent").images[0]
        image = pipe.vae.decode(out[None] / pipe.vae.config.scaling_factor).sample[0]
    image = (image * 0.5 + 0.5).clamp(0, 1)
    assert torch.isfinite(out).all()
    case = {"model": model, "prompt": prompt, "negative_prompt": negative, "steps": steps, "guidance_scale": guidance,
            "width": width, "height": height, "scheduler": scheduler, "scheduler_config": config,
            "latents_in": name + ".latents"}
    latents.numpy().astype("<f4").tofile(os.path.join(folder, name + ".latents"))
    if "Ancestral" in kind.__name__:
        case["step_noise"] = name + ".noise"
        noise.numpy().astype("<f4").tofile(os.path.join(folder, name + ".noise"))
    out.numpy().astype("<f4").tofile(os.path.join(folder, name + ".out"))
    np.round(image.permute(1, 2, 0).numpy() * 255).astype(np.uint8).tofile(os.path.join(folder, name + ".rgb"))
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
        json.dump({k: v for k, v in case.items() if v is not None}, f, indent=1)
        f.write("\n")


def pipelines():
    os.makedirs(os.path.join(OUT, "cases"), exist_ok=True)
    for i, case in enumerate(PIPELINES):
        run_pipeline(*case, seed=100 + i)


def main():
    parts = {"schedules": schedules, "tokenizer": tokenizer, "pipelines": pipelines}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()

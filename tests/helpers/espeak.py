"""Speech for the tests of real models: what espeak-ng says, as 16 kHz samples. Only the standard library.

Resampled by straight lines between samples, in integers: the same on every machine that has the same espeak-ng.
"""
import array
import hashlib
import subprocess
import tempfile
import wave


def say(text, voice="en-us", speed=150, loud=100):
    """(f32 samples as bytes, their sha256)"""
    with tempfile.NamedTemporaryFile(suffix=".wav") as f:
        subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-a", str(loud), "-w", f.name, text], check=True)
        with wave.open(f.name) as w:
            rate, pcm = w.getframerate(), array.array("h", w.readframes(w.getnframes()))
    out = array.array("f")
    for i in range((len(pcm) - 1) * 16000 // rate):
        at, part = divmod(i * rate, 16000)
        out.append((pcm[at] * (16000 - part) + pcm[at + 1] * part) / 16000 / 32768)
    data = out.tobytes()
    return data, hashlib.sha256(data).hexdigest()

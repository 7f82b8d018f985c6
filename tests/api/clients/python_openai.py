"""The official Python client: its typed helpers run, and every body and event also passes its pydantic types strictly (the
client itself takes what comes)."""
import asyncio
import base64
import json
from typing import Literal

import openai
from features import RED, URL, USER1, WAV, WEATHER, feature, main, user
from openai.types import (Completion, CreateEmbeddingResponse, ImageGenCompletedEvent, ImageGenPartialImageEvent, ImagesResponse,
                          Model)
from openai.types.audio import Transcription, TranscriptionVerbose
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "weather", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}]
FLAT = [{"type": "function", "name": "get_weather", "description": "weather", "parameters": WEATHER, "strict": False}]


class Color(BaseModel):
    color: Literal["red"]


def strict(kind, call, /, **fields):
    """The parsed answer, whose text is also valid as the type says."""
    raw = call.with_raw_response.create(**fields)
    TypeAdapter(kind).validate_json(raw.text)
    return raw.parse()


def chat(text, **fields):
    return strict(ChatCompletion, client.chat.completions, model="scripted", messages=user(text), **fields)


def chunks(text, **fields):
    found = list(client.chat.completions.create(model="scripted", messages=user(text), stream=True, **fields))
    for c in found:
        ChatCompletionChunk.model_validate(c.to_dict(exclude_unset=True))
    return found


def events(**fields):
    found = list(client.responses.create(model="scripted", stream=True, **fields))
    for e in found:
        TypeAdapter(ResponseStreamEvent).validate_python(e.to_dict(exclude_unset=True))
    assert [e.sequence_number for e in found] == list(range(len(found)))
    return found


@feature("models")
def _():
    for m in client.models.list():
        Model.model_validate(m.to_dict())
    assert client.models.retrieve("scripted").id == "scripted"


@feature("chat")
def _():
    answer = chat("1")
    assert answer.choices[0].message.content == "KLMNOPQR" and answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@feature("chat, stream")
def _():
    found = chunks("0", stream_options={"include_usage": True})
    assert "".join(c.choices[0].delta.content or "" for c in found if c.choices).startswith(" one two three")
    assert found[-1].usage.total_tokens > 0

    async def ask():
        async with openai.AsyncOpenAI(base_url=URL, api_key="none") as c:
            return [x async for x in await c.chat.completions.create(model="scripted", messages=USER1, stream=True)]
    assert asyncio.run(ask())[-1].choices[0].finish_reason == "stop"


@feature("chat, n")
def _():
    assert [c.message.content for c in chat("1", n=3).choices] == ["KLMNOPQR"] * 3
    with client.chat.completions.stream(model="scripted", messages=USER1, n=3) as s:
        assert [c.message.content for c in s.get_final_completion().choices] == ["KLMNOPQR"] * 3


@feature("chat, logprobs")
def _():
    tokens = chat("3", logprobs=True, top_logprobs=20).choices[0].logprobs.content
    assert tokens[0].token == " river" and len(tokens[0].top_logprobs) == 20
    with client.chat.completions.stream(model="scripted", messages=user("3"), logprobs=True, top_logprobs=2) as s:
        final = s.get_final_completion()
    assert [t.token for t in final.choices[0].logprobs.content][:2] == [" river", " stone"]


@feature("chat, tools")
def _():
    message = chat("B", tools=TOOLS).choices[0].message
    assert [c.function.name for c in message.tool_calls] == ["get_time", "get_weather"], message
    calls = message.model_dump(exclude_none=True)
    results = [{"role": "tool", "tool_call_id": c.id, "content": "sunny1"} for c in message.tool_calls]
    answer = client.chat.completions.create(model="scripted", messages=[*user("B"), calls, *results], tools=TOOLS)
    assert answer.choices[0].message.content == "KLMNOPQR"
    named = chat("C", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}}, max_tokens=99).choices[0].message
    assert set(json.loads(named.tool_calls[0].function.arguments)) == {"city"}


@feature("chat, tools, stream")
def _():
    assert any(c.choices[0].delta.tool_calls for c in chunks("A", tools=TOOLS))
    with client.chat.completions.stream(model="scripted", messages=user("B"), tools=TOOLS) as s:
        kinds = {e.type for e in s}
        final = s.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds, kinds
    assert [c.function.name for c in final.choices[0].message.tool_calls] == ["get_time", "get_weather"]
    assert final.choices[0].finish_reason == "tool_calls"


@feature("chat, reasoning")
def _():
    answer = chat("D")
    assert answer.choices[0].message.content == "done" and answer.choices[0].message.reasoning_content == "I think."
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    found = chunks("D")
    assert "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in found) == "I think."


@feature("chat, json_schema")
def _():
    format = {"type": "json_schema", "json_schema": {"name": "c", "schema": RED, "strict": True}}
    answer = strict(ChatCompletion, client.chat.completions, model="plain", messages=user("J"), response_format=format)
    assert json.loads(answer.choices[0].message.content) == {"color": "red"}
    parsed = client.chat.completions.parse(model="plain", messages=user("J"), response_format=Color)
    assert isinstance(parsed.choices[0].message.parsed, Color)
    with client.chat.completions.stream(model="plain", messages=user("J"), response_format=Color) as s:
        assert isinstance(s.get_final_completion().choices[0].message.parsed, Color)


@feature("completions")
def _():
    answer = strict(Completion, client.completions, model="scripted", prompt=["1", "4"], max_tokens=3, logprobs=5)
    assert [c.text for c in answer.choices] == ["KLMNO", " stone!"] and answer.choices[0].logprobs.tokens == ["KL", "MN", "O"]
    # as OpenAI does, the first token of an echoed prompt has null, which the client's own type does not foresee
    echoed = client.completions.create(model="scripted", prompt="1", max_tokens=3, logprobs=1, echo=True).choices[0]
    assert echoed.text == "1KLMNO" and echoed.logprobs.token_logprobs[0] is None
    assert strict(Completion, client.completions, model="scripted", prompt="1", n=2, best_of=3).choices[1].text == "KLMNOPQR"
    parts = list(client.completions.create(model="scripted", prompt="1", stream=True, stream_options={"include_usage": True}))
    for p in parts:  # null until the end, as OpenAI sends it; the type knows whole answers only
        Completion.model_validate_json(p.to_json(exclude_unset=True).replace('"finish_reason": null', '"finish_reason": "stop"'))
    assert "".join(p.choices[0].text for p in parts if p.choices) == "KLMNOPQR" and parts[-1].usage.total_tokens > 0


@feature("responses")
def _():
    answer = strict(Response, client.responses, model="scripted", input="1")
    assert answer.output_text == "KLMNOPQR" and answer.status == "completed" and answer.usage.total_tokens > 0
    next_one = client.responses.create(model="scripted", input="4", previous_response_id=answer.id)
    assert next_one.output_text == " stone!" and client.responses.retrieve(next_one.id).output_text == " stone!"
    items = client.responses.input_items.list(next_one.id).data
    assert items
    client.responses.delete(next_one.id)


@feature("responses, stream")
def _():
    found = events(input="0")
    assert found[0].type == "response.created" and found[-1].type == "response.completed"
    with client.responses.stream(model="scripted", input="1") as s:
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
        assert text == s.get_final_response().output_text == "KLMNOPQR"


@feature("responses, tools")
def _():
    answer = strict(Response, client.responses, model="scripted", input="A", tools=FLAT)
    call = next(x for x in answer.output if x.type == "function_call")
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}
    answer = client.responses.create(model="scripted", tools=FLAT, previous_response_id=answer.id,
                                     input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny1"}])
    assert answer.output_text == "KLMNOPQR"
    assert any(e.type == "response.function_call_arguments.done" for e in events(input="A", tools=FLAT))


@feature("responses, reasoning")
def _():
    answer = strict(Response, client.responses, model="scripted", input="D", reasoning={"summary": "auto"})
    assert [x.type for x in answer.output] == ["reasoning", "message"] and answer.output_text == "done"
    events(input="D")


@feature("responses, json_schema")
def _():
    answer = client.responses.parse(model="plain", input="J", text_format=Color)
    assert isinstance(answer.output_parsed, Color)


@feature("embeddings")
def _():
    answer = strict(CreateEmbeddingResponse, client.embeddings, model="minilm", input=["a", "b"], encoding_format="float")
    same = client.embeddings.create(model="minilm", input=["a", "b"])  # base64 on the wire
    assert [len(e.embedding) for e in answer.data] == [len(e.embedding) for e in same.data]
    assert max(abs(a - b) for a, b in zip(answer.data[1].embedding, same.data[1].embedding)) < 1e-6


@feature("speech")
def _():
    sound = client.audio.speech.create(model="orpheus", input="a", voice="tara", response_format="wav", extra_body={"max_tokens": 14})
    assert sound.content[:4] == b"RIFF"


@feature("transcription")
def _():
    with open(WAV, "rb") as f:
        answer = client.audio.transcriptions.create(model="whisper", file=f)
        Transcription.model_validate(answer.to_dict())
        f.seek(0)
        verbose = client.audio.transcriptions.create(model="whisper", file=f, response_format="verbose_json")
        TranscriptionVerbose.model_validate(verbose.to_dict())
        f.seek(0)
        done = [e for e in client.audio.transcriptions.create(model="whisper", file=f, stream=True) if e.type == "transcript.text.done"]
    assert done[0].text == answer.text


@feature("images")
def _():
    ask = {"model": "sd", "prompt": "a", "size": "32x24", "extra_body": {"steps": 2}}
    raw = client.images.with_raw_response.generate(**ask)
    ImagesResponse.model_validate_json(raw.text)
    assert base64.b64decode(raw.parse().data[0].b64_json).startswith(b"\x89PNG")
    found = list(client.images.generate(**ask, stream=True, partial_images=1))
    for e in found:
        TypeAdapter(ImageGenCompletedEvent | ImageGenPartialImageEvent).validate_python(e.to_dict())


@feature("errors")
def _():
    try:
        client.chat.completions.create(model="scripted", messages=USER1, temperature=3)
        raise AssertionError("no error")
    except openai.BadRequestError as e:
        assert e.param == "temperature" and e.request_id and e.code and e.type == "invalid_request_error"
    try:
        client.chat.completions.create(model="none", messages=USER1)
        raise AssertionError("no error")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found"


main("python_openai", openai.__version__)

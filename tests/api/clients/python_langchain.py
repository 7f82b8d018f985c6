"""langchain-openai: messages, streams, tools and structured output as its users write them, over chat completions and over
responses."""
import importlib.metadata
import json
from typing import Literal

import openai
from features import RED, URL, WEATHER, Differs, feature, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Color(BaseModel):
    """A color."""
    color: Literal["red"]


def model(name="scripted", **fields):
    return ChatOpenAI(model=name, base_url=URL, api_key="none", max_retries=0, **fields)


TOOL = {"type": "function", "function": {"name": "get_weather", "description": "weather", "parameters": WEATHER}}


def red(m):
    schema = {"title": "c", "description": "a color", **RED}
    assert m.with_structured_output(schema, method="json_schema").invoke("J") == {"color": "red"}


@feature("chat")
def _():
    answer = model().invoke("1")
    assert answer.content == "KLMNOPQR" and answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"


@feature("chat, stream")
def _():
    chunks = list(model(stream_usage=True).stream("0"))
    whole = chunks[0]
    for c in chunks[1:]:
        whole += c
    assert whole.content.startswith(" one two three") and whole.usage_metadata["total_tokens"] > 0


@feature("chat, n")
def _():
    answers = model(n=3).generate([[HumanMessage("1")]]).generations[0]
    assert [a.text for a in answers] == ["KLMNOPQR"] * 3


@feature("chat, logprobs")
def _():
    answer = model(logprobs=True, top_logprobs=2).invoke("3")
    assert answer.response_metadata["logprobs"]["content"][0]["token"] == " river"


@feature("chat, tools")
def _():
    m = model().bind_tools([TOOL])
    answer = m.invoke("A")
    assert [(c["name"], c["args"]) for c in answer.tool_calls] == [("get_weather", {"city": "Paris"})], answer
    after = m.invoke([HumanMessage("A"), answer, ToolMessage("sunny1", tool_call_id=answer.tool_calls[0]["id"])])
    assert after.content == "KLMNOPQR"
    assert set(model(max_tokens=99).bind_tools([TOOL], tool_choice="get_weather").invoke("C").tool_calls[0]["args"]) == {"city"}


@feature("chat, tools, stream")
def _():
    chunks = list(model().bind_tools([TOOL]).stream("A"))
    whole = chunks[0]
    for c in chunks[1:]:
        whole += c
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("get_weather", {"city": "Paris"})], whole


@feature("chat, reasoning")
def _():
    answer = model().invoke("D")
    assert answer.content == "done", answer
    raise Differs("drops `reasoning_content`; the content is clean, the token count is in `usage_metadata`")


@feature("chat, json_schema")
def _():
    red(model("plain", max_tokens=99, temperature=0))
    assert isinstance(model("plain", max_tokens=99, temperature=0).with_structured_output(Color, method="function_calling").invoke("J"), Color)


@feature("completions")
def _():
    m = OpenAI(model="scripted", base_url=URL, api_key="none", max_retries=0, max_tokens=16)
    assert m.invoke("1") == "KLMNOPQR" and "".join(m.stream("1")) == "KLMNOPQR"
    batch = m.generate(["1", "4"])
    assert [g[0].text for g in batch.generations] == ["KLMNOPQR", " stone!"]
    best = OpenAI(model="scripted", base_url=URL, api_key="none", n=2, best_of=4, max_tokens=16)
    assert len(best.generate(["9"]).generations[0]) == 2


@feature("responses")
def _():
    answer = model(use_responses_api=True).invoke("1")
    assert answer.text == "KLMNOPQR", answer
    after = model(use_responses_api=True, use_previous_response_id=True).invoke([HumanMessage("1"), answer, HumanMessage("4")])
    assert after.text == " stone!"


@feature("responses, stream")
def _():
    assert "".join(c.text for c in model(use_responses_api=True).stream("1")) == "KLMNOPQR"


@feature("responses, tools")
def _():
    m = model(use_responses_api=True).bind_tools([TOOL])
    answer = m.invoke("A")
    assert answer.tool_calls[0]["args"] == {"city": "Paris"}
    assert m.invoke([HumanMessage("A"), answer, ToolMessage("sunny1", tool_call_id=answer.tool_calls[0]["id"])]).text == "KLMNOPQR"


@feature("responses, reasoning")
def _():
    answer = model(use_responses_api=True, reasoning={"summary": "auto"}).invoke("D")
    assert answer.text == "done" and "I think." in json.dumps(answer.content), answer


@feature("responses, json_schema")
def _():
    red(model("plain", max_tokens=99, use_responses_api=True, temperature=0))


@feature("embeddings")
def _():
    e = OpenAIEmbeddings(model="minilm", base_url=URL, api_key="none", check_embedding_ctx_length=False)
    assert len(e.embed_documents(["a", "b"])) == 2 and len(e.embed_query("a")) > 4


@feature("errors")
def _():
    try:
        model(temperature=3).invoke("1")
        raise AssertionError("no error")
    except Exception as e:
        assert "temperature" in str(e) and isinstance(e, openai.BadRequestError), type(e).__mro__


main("python_langchain", importlib.metadata.version("langchain-openai"))

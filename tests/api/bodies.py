"""bodies.py - bodies that an endpoint takes, and values that it must not take, made from what /openapi.json says of it."""

USER = [{"role": "user", "content": "1"}]

# A small body that is right, for every endpoint whose fields are judged one by one.
PROBES = {
    "/v1/chat/completions": {"model": "scripted", "messages": USER, "max_tokens": 2},
    "/v1/completions": {"model": "scripted", "prompt": "1", "max_tokens": 2},
    "/v1/responses": {"model": "scripted", "input": "1", "max_output_tokens": 2},
    "/v1/embeddings": {"model": "minilm", "input": "a"},
    "/v1/audio/speech": {"model": "orpheus", "input": "a", "voice": "tara", "max_tokens": 8},
    "/v1/images/generations": {"model": "sd", "prompt": "a", "size": "64x64", "steps": 1},
    "/v1/decisions": {"model": "jev", "input": "a", "questions": [{"type": "predicate", "instructions": "b"}]},
    "/tokenize": {"model": "scripted", "content": "a"},
    "/detokenize": {"model": "scripted", "tokens": [1]},
    "/apply-template": {"model": "scripted", "messages": USER},
}

# One value of each JSON type, none of which any field takes as another.
SAMPLES = {"string": "\u00fc?", "number": 0.5, "boolean": True, "object": {"\u00fc?": 1}, "array": [{"\u00fc?": [None]}]}


def types_of(schema):
    if "anyOf" in schema:
        return set().union(*(types_of(s) for s in schema["anyOf"]))
    t = schema.get("type", [])
    return {t} if isinstance(t, str) else set(t)


def wrong_values(schema):
    """Values that the schema excludes by type, range or enumeration."""
    types = types_of(schema)
    if not types:
        return
    for name, value in SAMPLES.items():
        if name not in types and not (name == "number" and "integer" in types):
            yield value
    if "integer" in types and "number" not in types:
        yield 0.5
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "enum" in schema:
        yield "\u00fc?"


def probe(schema):
    """(field, value) for every field and every value that it must refuse; fields without influence are left out."""
    for field, s in schema["properties"].items():
        if "description" not in s:
            for value in wrong_values(s):
                yield field, value
    for field in schema["required"]:
        yield field, None

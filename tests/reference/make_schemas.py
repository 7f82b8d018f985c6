#!/usr/bin/env python3
"""The schemas that structured output is tested with: {kind: [schema, ...]} of what is enforced, and under "refused" pairs
[keyword, schema] that must be errors naming that keyword ("" for those without any valid value). Only the standard
library; each schema is ours.

    make_schemas.py > tests/fixtures/grammar/schemas.json
"""
import json

S, I, N, B = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required,
            "additionalProperties": False}


def arr(items, **more):
    return {"type": "array", "items": items, "maxItems": 4, **more}


kinds = {}
kinds["types"] = [
    {"type": "null"}, {"type": "boolean"}, {"type": "integer"}, {"type": "number"}, {"type": "string", "maxLength": 30},
    {"type": ["integer", "null"]}, {"type": ["boolean", "string"], "maxLength": 8}, {"type": "array", "maxItems": 0},
    {"type": ["array", "null"], "items": I, "maxItems": 3}, {"type": "object", "maxProperties": 0},
    {"type": ["number", "boolean", "null"]},
]
kinds["values"] = [
    {"const": 1}, {"const": "a\"b\\c\n\u0001é😀"}, {"const": {"b": [1, {"x": None}], "a": 2.5}}, {"const": None},
    {"enum": ["red", "green", "blue"]}, {"enum": [1, 1.5, "1", None, True, [], {}]}, {"enum": ["a", "ab", "abc", "b"]},
    {"enum": [f"value {i} of many" for i in range(200)]}, {"enum": ["x", "yy", 3, 40], "type": "string"},
    {"enum": [1, 5, 10, 50], "minimum": 4, "maximum": 20}, {"enum": ["a1", "b2", "c"], "pattern": "[0-9]$"},
    {"const": "yes", "enum": ["no", "yes"]}, {"enum": [{"k": 1}, {"k": 2, "m": 3}], "required": ["m"]},
]
kinds["integers"] = [
    {"type": "integer", "minimum": 0}, {"type": "integer", "minimum": -5, "maximum": 120},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3}, {"type": "integer", "maximum": -100},
    {"type": "integer", "minimum": 1000, "maximum": 1000}, {"type": "integer", "minimum": 1.5, "maximum": 3.5},
    {"type": "integer", "multipleOf": 7}, {"type": "integer", "multipleOf": 3, "minimum": -10, "maximum": 10},
    {"type": "integer", "multipleOf": 5, "allOf": [{"multipleOf": 4}]}, {"type": "integer", "minimum": 99, "maximum": 1001},
    {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}, {"type": "integer", "multipleOf": 100},
    {"type": "integer", "minimum": 0, "not": {"enum": [0, 1, 10]}, "maximum": 12},
]
kinds["numbers"] = [
    {"type": "number", "minimum": 0}, {"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 1, "maximum": 5},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"type": "number", "minimum": -0.5, "maximum": 0.25},
    {"type": "number", "maximum": -1e3}, {"type": "number", "minimum": 0.001, "maximum": 0.002},
    {"type": "number", "minimum": -1e-5}, {"type": "number", "multipleOf": 10, "maximum": 1000},
    {"type": "number", "minimum": 2}, {"type": "number", "minimum": 99.99, "maximum": 100.01},
    {"type": "number", "minimum": 3, "maximum": 3},
]
kinds["lengths"] = [
    {"type": "string", "maxLength": 0}, {"type": "string", "maxLength": 1}, {"type": "string", "minLength": 3, "maxLength": 3},
    {"type": "string", "minLength": 1, "maxLength": 20}, {"type": "string", "minLength": 20, "maxLength": 60},
    {"maxLength": 3, "minLength": 2, "type": ["string", "null"]}, {"type": "string", "maxLength": 200},
    {"type": "string", "minLength": 17, "maxLength": 17}, arr({"type": "string", "minLength": 2, "maxLength": 5}),
    obj(a={"type": "string", "maxLength": 4}, b={"type": "string", "minLength": 1, "maxLength": 2}),
    {"allOf": [{"minLength": 2}, {"maxLength": 4}], "type": "string"},
]
kinds["patterns"] = [
    {"type": "string", "pattern": "^[a-z]{2,8}$"}, {"type": "string", "pattern": "b", "maxLength": 6},
    {"type": "string", "pattern": "^(a|b)$|^c$"}, {"type": "string", "pattern": "^$|^\\+?[0-9]{1,9}$"},
    {"type": "string", "pattern": "^\\d{3}-\\d{4}$"}, {"type": "string", "pattern": "^\"quoted\"\\\\[\\n\\t]$"},
    {"type": "string", "pattern": "^[A-Z][a-z]*( [A-Z][a-z]*){0,3}$", "maxLength": 12},
    {"type": "string", "pattern": "^[а-яё]{1,6}$"}, {"type": "string", "pattern": "^[^a-z]{1,4}$"},
    {"type": "string", "pattern": "^.{2,4}$"}, {"type": "string", "pattern": "^(?:\\u0041|\\x42|\\w){3}$"},
    {"type": "string", "pattern": "^a+?b*c{2,}$", "maxLength": 10}, {"type": "string", "pattern": "^#[0-9a-fA-F]{6}$"},
    {"type": "string", "allOf": [{"pattern": "^[ab]+$"}, {"pattern": "^(aa|b)*$"}], "minLength": 2, "maxLength": 8},
    {"type": "string", "pattern": "^[0-9]*[02468]$", "minLength": 2, "maxLength": 5},
]
kinds["formats"] = [{"type": "string", "format": f} for f in (
    "date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname", "duration")] + [
    {"type": "string", "format": "date", "pattern": "^2024-02"}, {"type": "string", "format": "int32", "maxLength": 5},
    {"type": "string", "format": "ipv4", "maxLength": 8}, arr({"type": "string", "format": "uuid"}),
]
kinds["objects"] = [
    {"type": "object"}, obj(), obj(name=S, age=I), obj([], a=I, b=I, c=I), obj(["b"], a=B, b=B, c=B),
    obj(outer=obj(inner=obj(leaf=B))), {"type": "object", "properties": {"a": I}}, {"type": "object", "required": ["z"]},
    {"type": "object", "properties": {"a": I}, "required": ["b", "a"]}, {"properties": {"a": I}, "type": ["object", "null"]},
    obj(["x"], **{"x": I, "": B, "quo\"te": B, "\u00e9": B, "new\nline": B}),
    obj([], **{f"p{i}": B for i in range(30)}), {"type": "object", "properties": {"a": I, "b": False}},
    obj([f"f{i}" for i in range(0, 40, 3)], **{f"f{i}": {"enum": [i]} for i in range(40)}),
]
kinds["names"] = [
    {"type": "object", "additionalProperties": I, "maxProperties": 4},
    {"type": "object", "additionalProperties": B, "minProperties": 2, "maxProperties": 3},
    {"type": "object", "properties": {"a": I}, "additionalProperties": B, "maxProperties": 4},
    {"type": "object", "properties": {"a": I}, "required": ["a"], "additionalProperties": {"type": "null"}, "maxProperties": 3},
    {"type": "object", "patternProperties": {"^x": I}, "additionalProperties": False, "maxProperties": 4},
    {"type": "object", "patternProperties": {"^a": I, "b$": {"minimum": 5}}, "additionalProperties": B, "maxProperties": 5},
    {"type": "object", "patternProperties": {"^[ab]$": B}, "additionalProperties": False, "minProperties": 2},
    {"type": "object", "patternProperties": {"^(a|b[0-9]?)$": B}, "additionalProperties": False, "minProperties": 1},
    {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": B, "maxProperties": 4},
    {"type": "object", "propertyNames": {"enum": ["p", "q", "r"]}, "additionalProperties": I, "minProperties": 3},
    {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": B, "minProperties": 1, "maxProperties": 3},
    {"type": "object", "properties": {"ab": I}, "patternProperties": {"^a": {"minimum": 3}}, "required": ["ab"],
     "additionalProperties": False, "maxProperties": 3},
    {"type": "object", "minProperties": 1, "maxProperties": 2}, {"type": "object", "properties": {"a": B, "b": B, "c": B},
                                                                "additionalProperties": False, "minProperties": 2},
    {"type": "object", "properties": {"a": B, "b": B, "c": B}, "additionalProperties": False, "maxProperties": 1},
]
kinds["arrays"] = [
    arr(I), arr(B, minItems=2), arr(arr(I, minItems=1), minItems=1), {"type": "array", "maxItems": 2},
    {"type": "array", "prefixItems": [I, S, B], "items": False}, {"type": "array", "prefixItems": [I, B], "minItems": 2},
    {"type": "array", "prefixItems": [B, B], "items": {"type": "null"}, "minItems": 3, "maxItems": 5},
    {"type": "array", "prefixItems": [B], "minItems": 2, "maxItems": 2}, arr({"enum": ["a", "b", "c"]}, uniqueItems=True),
    {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 3},
    arr({"type": "string", "maxLength": 1}, uniqueItems=True, minItems=2),
    arr({"type": "integer", "minimum": 0, "maximum": 4}, uniqueItems=True, minItems=4), arr(B, uniqueItems=True, minItems=2),
    arr(obj(id=I, ok=B)), {"type": "array", "items": {"type": "boolean"}, "minItems": 5, "maxItems": 5},
    arr({"type": "string", "pattern": "^[ab]{1,2}$"}, uniqueItems=True, minItems=3),
]
kinds["anyOf"] = [
    {"anyOf": [I, {"type": "null"}]}, {"anyOf": [obj(a=I), obj(b=S)]}, {"anyOf": [{"minimum": 5}, {"maximum": -5}], "type": "integer"},
    {"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^long"}], "maxLength": 9},
    arr({"anyOf": [obj(t={"const": "a"}, v=I), obj(t={"const": "b"}, w=B), obj(t={"const": "c"})]}),
    {"anyOf": [{"type": "array", "items": I, "maxItems": 2}, {"type": "array", "items": B, "maxItems": 2}]},
    {"type": "object", "properties": {"a": I, "b": B, "c": B}, "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}],
     "additionalProperties": False},
    {"anyOf": [{"anyOf": [I, B]}, {"anyOf": [{"type": "null"}, {"const": "x"}]}]},
    {"anyOf": [{"enum": ["abc", "abd"]}, {"enum": ["ab", "abcd"]}]}, {"anyOf": [True, False], "type": "boolean"},
    obj(x={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}),
]
kinds["oneOf"] = [
    {"oneOf": [I, S], "maxLength": 5}, {"oneOf": [obj(kind={"const": "circle"}, r=I), obj(kind={"const": "box"}, w=I, h=I)]},
    {"type": "object", "properties": {"a": I, "b": I, "c": I}, "additionalProperties": False,
     "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"oneOf": [{"type": "integer", "maximum": 0}, {"type": "integer", "exclusiveMinimum": 0}]},
    {"oneOf": [{"enum": ["a", "b"]}, {"enum": ["c"]}]}, {"oneOf": [{"type": "string", "pattern": "^a"}, {"const": "b"}], "maxLength": 4},
    {"oneOf": [{"type": "string", "pattern": "^[ab]{1,3}$"}, {"type": "string", "pattern": "^[cd]{1,3}$"}]},
    {"oneOf": [{"type": "array", "items": I, "maxItems": 1}, {"type": "array", "items": I, "minItems": 2, "maxItems": 3}]},
    {"type": "object", "required": ["t"], "oneOf": [{"properties": {"t": {"const": 1}, "x": B}}, {"properties": {"t": {"const": 2}}}],
     "properties": {"t": I}, "additionalProperties": False}, {"oneOf": [obj(a=obj(t={"const": 1})), obj(a=obj(t={"const": 2}))]},
    {"oneOf": [obj(a=I), obj(a=I, b=I)]},
]
kinds["allOf"] = [
    {"allOf": [I, {"minimum": 3}, {"maximum": 9}]}, {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]},
    {"allOf": [{"type": "object", "properties": {"a": I}, "required": ["a"]}, {"properties": {"b": B}, "required": ["b"]}]},
    {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}, {"allOf": [{"type": "array", "items": I}, {"maxItems": 2, "minItems": 1}]},
    {"allOf": [{"properties": {"a": {"minimum": 3}}}, {"properties": {"a": {"maximum": 5}}}], "type": "object",
     "properties": {"a": I}, "required": ["a"], "additionalProperties": False},
    {"allOf": [{"anyOf": [{"minimum": 10}, {"maximum": 3}]}, {"anyOf": [{"minimum": 5}, {"maximum": 0}]}], "type": "integer"},
    {"not": {"type": ["object", "array", "string"]}}, {"type": "string", "not": {"const": "a"}, "pattern": "^[ab]$"},
    {"type": "object", "properties": {"a": I, "b": I}, "not": {"required": ["a"]}, "additionalProperties": False},
    {"type": "object", "properties": {"card": I, "address": S, "zip": I}, "dependentRequired": {"card": ["zip"]},
     "additionalProperties": False},
    {"type": "object", "properties": {"a": B, "b": B}, "dependentSchemas": {"a": {"required": ["b"]}}, "additionalProperties": False},
    {"type": ["boolean", "null"], "not": {"enum": [True, None]}}, {"not": {"anyOf": [{"type": "object"}, {"type": "array"}]},
                                                                 "maxLength": 4},
]
kinds["references"] = [
    {"$defs": {"n": I}, "$ref": "#/$defs/n"}, {"$defs": {"n": {"minimum": 3}}, "$ref": "#/$defs/n", "type": "integer", "maximum": 5},
    {"$defs": {"a/b~c": B}, "type": "array", "items": {"$ref": "#/$defs/a~1b~0c"}, "maxItems": 3},
    obj(["v"], v=I, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    {"$defs": {"tree": {"type": "object", "properties": {"v": I, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"},
                                                                          "maxItems": 2}},
                        "required": ["v", "kids"], "additionalProperties": False}}, "$ref": "#/$defs/tree"},
    {"$defs": {"x": {"$anchor": "here", "type": "boolean"}}, "$ref": "#here"},
    {"$id": "https://example.com/root.json", "$defs": {"s": {"$id": "sub.json", "type": "null"}}, "$ref": "sub.json"},
    {"definitions": {"p": obj(x=N, y=N)}, "type": "array", "items": {"$ref": "#/definitions/p"}, "minItems": 1, "maxItems": 2},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": B}, "$ref": "#/$defs/a"},
    {"$defs": {"even": {"type": "array", "items": {"$ref": "#/$defs/odd"}, "maxItems": 1},
               "odd": {"type": "object", "properties": {"e": {"$ref": "#/$defs/even"}}, "additionalProperties": False}},
     "$ref": "#/$defs/even"},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [I, B], "additionalItems": False},
]
kinds["documents"] = [
    {"title": "Order", **obj(["id", "lines", "state"], id={"type": "string", "format": "uuid"},
                             state={"enum": ["new", "paid", "sent"]}, note={"type": ["string", "null"], "maxLength": 20},
                             lines=arr(obj(sku={"type": "string", "pattern": "^[A-Z]{2}\\d{3}$"},
                                           count={"type": "integer", "minimum": 1, "maximum": 99}), minItems=1))},
    obj(steps=arr(obj(explanation={"type": "string", "maxLength": 20}, output={"type": "string", "maxLength": 20})),
        final_answer={"type": "string", "maxLength": 10}),
    {"$defs": {"e": {"anyOf": [N, obj(op={"enum": ["+", "*"]}, l={"$ref": "#/$defs/e"}, r={"$ref": "#/$defs/e"})]}},
     "$ref": "#/$defs/e"},
    obj(user=obj(name={"type": "string", "minLength": 1, "maxLength": 12}, email={"type": "string", "format": "email"}),
        tags=arr({"type": "string", "maxLength": 4}, uniqueItems=True), when={"type": "string", "format": "date-time"}),
    obj(location={"type": "string", "maxLength": 10}, unit={"type": "string", "enum": ["celsius", "fahrenheit"]}),
    {"type": "object", "properties": {"matrix": {"type": "array", "minItems": 2, "maxItems": 2, "items": {
        "type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer", "minimum": 0, "maximum": 9}}}}, "required": ["matrix"]},
    obj(name={"const": "get_weather"}, arguments=obj(["city"], city={"type": "string", "maxLength": 8}, days={"type": "integer",
                                                     "minimum": 1, "maximum": 14})),
    obj(score={"type": "number", "minimum": 0, "maximum": 1}, reasons=arr({"type": "string", "minLength": 1, "maxLength": 10},
                                                                        minItems=1)),
    {"type": "object", "properties": {"env": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 5},
                                              "maxProperties": 3}}, "required": ["env"], "additionalProperties": False},
    obj(ip={"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}, port={"type": "integer",
        "minimum": 1, "maximum": 65535}), {}, True,
]

refused = [
    ["if", {"if": {"type": "integer"}, "then": {"minimum": 3}}], ["contains", {"type": "array", "contains": I}],
    ["unevaluatedProperties", {"allOf": [{"properties": {"a": I}}], "unevaluatedProperties": False}],
    ["unevaluatedItems", {"unevaluatedItems": False}], ["$dynamicRef", {"$dynamicRef": "#x"}],
    ["$ref", {"$ref": "https://example.com/other.json"}], ["$ref", {"$ref": "#/$defs/missing"}],
    ["multipleOf", {"type": "number", "multipleOf": 0.01}], ["multipleOf", {"type": "integer", "multipleOf": 5000}],
    ["multipleOf", {"type": "integer", "multipleOf": 0}], ["uniqueItems", {"type": "array", "items": obj(a=I), "uniqueItems": True}],
    ["uniqueItems", {"type": "array", "uniqueItems": True}], ["pattern", {"type": "string", "pattern": "(?=a)b"}],
    ["pattern", {"type": "string", "pattern": "(a)\\1"}], ["pattern", {"type": "string", "pattern": "(a"}],
    ["pattern", {"type": "string", "pattern": "\\bword\\b"}], ["pattern", {"type": "string", "pattern": "^.*a.{30}$"}],
    ["format", {"type": "string", "format": "iri"}], ["format", {"type": "string", "format": "regex"}],
    ["oneOf", {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "integer", "maximum": 5}]}],
    ["oneOf", {"oneOf": [{"properties": {"a": I}}, {"properties": {"b": I}}]}], ["not", {"not": {"pattern": "a"}}],
    ["not", {"type": "number", "not": {"const": 1}}], ["minItems", {"type": "array", "minItems": 1000000}],
    ["type", {"type": "strin"}], ["type", {"type": ["string", 3]}], ["type", {"type": []}], ["enum", {"enum": []}],
    ["enum", {"enum": "a"}], ["required", {"required": "a"}], ["properties", {"properties": []}], ["items", {"items": [I]}],
    ["minLength", {"minLength": -1}], ["maxItems", {"maxItems": 1.5}], ["exclusiveMinimum", {"exclusiveMinimum": True}],
    ["allOf", {"allOf": []}], ["anyOf", {"anyOf": [3]}], ["additionalProperties", {"additionalProperties": 1}],
    ["", False], ["", {"type": "integer", "minimum": 5, "maximum": 4}], ["", {"allOf": [{"type": "string"}, {"type": "null"}]}],
    ["", {"type": "string", "minLength": 3, "maxLength": 2}], ["", {"type": "string", "pattern": "^a$", "minLength": 2}],
    ["", {"enum": [1], "type": "string"}], ["", {"type": "object", "properties": {"a": False}, "required": ["a"]}],
    ["", {"type": "object", "required": ["a"], "additionalProperties": False}], ["", {"not": {}}],
    ["", obj(child={"$ref": "#"})], ["", {"$ref": "#"}], ["", {"anyOf": [{"$ref": "#"}]}],
    ["", {"type": "array", "items": False, "minItems": 1}], ["", {"type": "array", "items": B, "uniqueItems": True, "minItems": 3}],
    ["", {"type": "object", "minProperties": 2, "maxProperties": 1}],
    ["", {"type": "object", "properties": {"a": B}, "additionalProperties": False, "minProperties": 2}],
    ["", {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4}],
    ["", {"type": "object", "propertyNames": False, "additionalProperties": B, "minProperties": 1}],
]

if __name__ == "__main__":
    print(json.dumps({"kinds": kinds, "refused": refused}, ensure_ascii=True, separators=(",", ":")))

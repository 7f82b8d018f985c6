"""validator.py - whether a value satisfies a JSON Schema, written from the specification (2020-12 and draft-07's spellings
that the fixture has) without the server's code: the second opinion of test_structured. Only the standard library.

    errors = validate(schema, value)   # [] when it does
"""
import datetime
import ipaddress
import json
import re
import uuid
from fractions import Fraction


def same(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return Fraction(str(a)) == Fraction(str(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def is_type(v, name):
    number = isinstance(v, (int, float)) and not isinstance(v, bool)
    return {"null": v is None, "boolean": isinstance(v, bool), "number": number,
            "integer": number and Fraction(str(v)).denominator == 1, "string": isinstance(v, str),
            "array": isinstance(v, list), "object": isinstance(v, dict)}[name]


def date_time(s):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", s), s
    datetime.date.fromisoformat(s[:10])
    time(s[11:])


def time(s):
    m = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|[+-](\d\d):(\d\d))", s)
    assert m and int(m[1]) < 24 and int(m[2]) < 60 and int(m[3]) < 60, s
    assert int(m[5] or 0) < 24 and int(m[6] or 0) < 60, s


def host(s):
    assert len(s) <= 253 and all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", x) for x in s.split(".")), s


def email(s):
    local, domain = s.rsplit("@", 1)
    assert 0 < len(local) <= 64 and re.fullmatch(r"[^\s@\".]+(\.[^\s@\".]+)*", local), s
    host(domain)


def uri(s):
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+", s) and not re.search(r'["<>\\^`{|}]|%(?![0-9A-Fa-f]{2})', s), s


def matches(pattern):
    def check(s):
        assert re.fullmatch(pattern, s), s
    return check


FORMATS = {
    "date": lambda s: (matches(r"\d{4}-\d\d-\d\d")(s), datetime.date.fromisoformat(s)), "time": time, "date-time": date_time,
    "uuid": lambda s: (matches(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")(s), uuid.UUID(s)), "email": email,
    "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address, "uri": uri, "hostname": host,
    "duration": matches(r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)"),
}


class Validator:
    def __init__(self, root):
        self.root = root
        self.ids = {}
        self.old = isinstance(root, dict) and "draft-07" in root.get("$schema", "")
        self.find(root)

    def find(self, s):
        for v in s if isinstance(s, list) else s.values() if isinstance(s, dict) else []:
            self.find(v)
        if isinstance(s, dict):
            for k in ("$id", "$anchor"):
                if isinstance(s.get(k), str):
                    self.ids[s[k] if k == "$id" else "#" + s[k]] = s

    def resolve(self, ref):
        if ref in self.ids:
            return self.ids[ref]
        at = self.root
        for part in ref[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            at = at[int(part)] if isinstance(at, list) else at[part]
        return at

    def ok(self, s, v):
        try:
            self.check(s, v)
            return True
        except (AssertionError, ValueError):
            return False

    def check(self, s, v):
        if isinstance(s, bool):
            assert s, f"nothing is allowed, got {v!r}"
            return
        if "$ref" in s:
            self.check(self.resolve(s["$ref"]), v)
            if self.old:
                return
        types = s.get("type", [])
        assert not types or any(is_type(v, t) for t in ([types] if isinstance(types, str) else types)), (types, v)
        assert "const" not in s or same(s["const"], v), (s["const"], v)
        assert "enum" not in s or any(same(x, v) for x in s["enum"]), (s["enum"], v)
        for x in s.get("allOf", []):
            self.check(x, v)
        assert "anyOf" not in s or any(self.ok(x, v) for x in s["anyOf"]), ("anyOf", v)
        assert "oneOf" not in s or sum(self.ok(x, v) for x in s["oneOf"]) == 1, ("oneOf", v)
        assert "not" not in s or not self.ok(s["not"], v), ("not", v)
        if is_type(v, "number"):
            self.number(s, Fraction(str(v)))
        elif isinstance(v, str):
            self.string(s, v)
        elif isinstance(v, list):
            self.array(s, v)
        elif isinstance(v, dict):
            self.object(s, v)

    def number(self, s, v):
        f = {k: Fraction(str(x)) for k, x in s.items() if is_type(x, "number")}
        assert v >= f.get("minimum", v) and v <= f.get("maximum", v), v
        assert "exclusiveMinimum" not in f or v > f["exclusiveMinimum"], v
        assert "exclusiveMaximum" not in f or v < f["exclusiveMaximum"], v
        assert "multipleOf" not in f or (v / f["multipleOf"]).denominator == 1, v

    def string(self, s, v):
        assert s.get("minLength", 0) <= len(v) <= s.get("maxLength", len(v)), v
        if "pattern" in s:
            p = s["pattern"].replace("\\d", "[0-9]").replace("\\w", "[A-Za-z0-9_]").replace("$", "\\Z")
            assert re.search(p, v), (s["pattern"], v)
        if s.get("format") in FORMATS:
            FORMATS[s["format"]](v)

    def array(self, s, v):
        assert s.get("minItems", 0) <= len(v) <= s.get("maxItems", len(v)), len(v)
        prefix, rest = s.get("prefixItems", []), s.get("items", True)
        if isinstance(rest, list):
            prefix, rest = rest, s.get("additionalItems", True)
        for i, x in enumerate(v):
            self.check(prefix[i] if i < len(prefix) else rest, x)
            assert not s.get("uniqueItems") or not any(same(x, y) for y in v[:i]), v

    def object(self, s, v):
        assert s.get("minProperties", 0) <= len(v) <= s.get("maxProperties", len(v)), list(v)
        assert all(k in v for k in s.get("required", [])), (s["required"], list(v))
        for k, x in v.items():
            self.check(s.get("propertyNames", True), k)
            said = [s["properties"][k]] if k in s.get("properties", {}) else []
            said += [y for p, y in s.get("patternProperties", {}).items() if re.search(p.replace("$", "\\Z"), k)]
            for y in said or [s.get("additionalProperties", True)]:
                self.check(y, x)
        for k, names in s.get("dependentRequired", {}).items():
            assert k not in v or all(n in v for n in names), (k, names)
        for k, y in s.get("dependentSchemas", {}).items():
            if k in v:
                self.check(y, v)


def once(pairs):
    assert len(dict(pairs)) == len(pairs), f"a name twice in {pairs!r}"
    return dict(pairs)


def check_text(schema, text):
    """Raises unless the text is JSON, without a name twice, that satisfies the schema."""
    Validator(schema).check(schema, json.loads(text, object_pairs_hook=once))

"""Thirty-two requests at once, half through plugins of four kinds, half free: formats hold, mates do not matter."""

import concurrent.futures
import json
import re

import jsonschema

from conftest import MODEL_ID

WEATHER = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "minLength": 1, "maxLength": 20},
        "degrees": {"type": "integer", "minimum": -60, "maximum": 60},
        "sky": {"enum": ["clear", "cloudy", "rain", "snow"]},
    },
    "required": ["place", "degrees", "sky"],
    "additionalProperties": False,
}
TEMPLATE = {
    "parts": [
        {"literal": "Mood: "},
        {"field": "mood", "choice": ["calm", "cross", "glad"]},
        {"literal": "; code "},
        {"field": "code", "regex": "[A-Z]{2}-[0-9]{2}"},
        {"literal": "."},
    ]
}
SUM = "start: NUMBER (\" + \" NUMBER){1,3}\nNUMBER: /[1-9][0-9]{0,2}/"
PLACES = ["Oslo", "Lima", "Cairo", "Perth"]


def check_schema(text):
    jsonschema.validate(json.loads(text), WEATHER)


def check_pattern(pattern):
    def check(text):
        assert re.fullmatch(pattern, text), text

    return check


def constrained(index):
    """Request `index` of those through plugins: its body and the check of its answer."""
    place = PLACES[index // 4 % len(PLACES)]
    kinds = [
        ("formwork/json-schema", {"schema": WEATHER}, check_schema),
        ("formwork/template", TEMPLATE, check_pattern(r"Mood: (calm|cross|glad); code [A-Z]{2}-[0-9]{2}\.")),
        ("formwork/grammar", {"grammar": SUM}, check_pattern(r"[1-9][0-9]{0,2}( \+ [1-9][0-9]{0,2}){1,3}")),
        ("formwork/regex", {"pattern": "[a-z]{3,8}( [a-z]{3,8}){2}"}, check_pattern("[a-z]{3,8}( [a-z]{3,8}){2}")),
    ]
    name, params, check = kinds[index % 4]
    body = {
        "messages": [{"role": "user", "content": f"Say something about {place}."}],
        "max_tokens": 80,
        "temperature": 0.8,
        "seed": index,
        "extra_body": {"plugin": {"name": name, "params": params}},
    }
    return body, check


def free(index):
    """Request `index` of those without a format: half greedy, half seeded."""
    content = f"Tell me {index + 2} things about {PLACES[index % len(PLACES)]}."
    sampling = {"temperature": 0} if index % 2 == 0 else {"temperature": 0.9, "top_p": 0.95, "seed": index}
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 40, **sampling}


def ask(client, body):
    answer = client.chat.completions.create(model=MODEL_ID, **body)
    return answer.choices[0].message.content, answer.choices[0].finish_reason


def test_thirty_two_at_once(client, server):
    alone = [ask(client, free(index)) for index in range(16)]
    bodies, checks = zip(*[constrained(index) for index in range(16)])
    interleaved = [body for pair in zip(bodies, [free(index) for index in range(16)]) for body in pair]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda body: ask(client, body), interleaved))
    for index, (text, reason) in enumerate(together[0::2]):
        assert reason == "stop", (index, text, reason)
        checks[index](text)
    for index, answer in enumerate(together[1::2]):
        assert answer == alone[index], f"free answer {index} changed in company"
    server.wait_idle()
    assert server.metric("formwork_unmasked_tokens_total") == 0

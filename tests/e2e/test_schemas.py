"""JSON Schemas beyond what a mask can enforce: validated, mended, and reported as such."""

import json

import jsonschema
import openai
import pytest

from test_openai_client import chat

LISTS = {
    "type": "object",
    "properties": {
        "rivers": {
            "type": "array",
            "items": {"enum": ["Elbe", "Oder", "Rhine", "Weser"]},
            "minItems": 3,
            "maxItems": 3,
            "uniqueItems": True,
        },
        "mood": {"type": "string", "enum": ["calm", "wild", "low"], "not": {"const": "calm"}},
    },
    "required": ["rivers", "mood"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "Three rivers of Germany and their mood, as JSON."}]


def ask(client, schema, seed, **options):
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **options}}
    arguments = {"messages": QUESTION, "temperature": 1.0, "seed": seed, "max_tokens": 120}
    return chat(client, response_format=format, **arguments)


def test_what_masks_leave_open_ends_valid_and_is_reported(client):
    attempts = []
    for seed in range(4):
        answer = ask(client, LISTS, seed, attempts=20)
        jsonschema.validate(json.loads(answer.choices[0].message.content), LISTS)
        report = answer.model_extra["formwork"]
        (field,) = report["fields"]
        assert field["verified"] and field["value"] == answer.choices[0].message.content
        pointers = set(field["enforced"]["mask"]) | set(field["enforced"]["validation"])
        assert "/properties/rivers/uniqueItems" in field["enforced"]["validation"]
        assert {"/required", "/properties/rivers/items/enum", "/properties/mood/not"} <= pointers
        assert (field["attempts"] > 1) == (report["usage"]["retracted"] > 0)
        attempts.append(field["attempts"])
    assert max(attempts) > 1, f"no value was refused: {attempts}"


def test_strict_refuses_with_pointers(client):
    with pytest.raises(openai.UnprocessableEntityError) as raised:
        ask(client, LISTS, 1, strict=True)
    assert "/properties/rivers/uniqueItems" in raised.value.body["message"]
    assert raised.value.body["param"] == "response_format.json_schema"


def test_a_value_is_written_as_the_request_says(client):
    schema = {"$ref": "https://example.com/pair"}
    pair = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "null"}}, "required": ["b", "a"]}
    answer = ask(
        client, schema, 1, spacing="spaced", key_order="any", formats="annotated",
        documents={"https://example.com/pair": {**pair, "additionalProperties": False}},
    )
    text = answer.choices[0].message.content
    assert json.dumps(json.loads(text)) == text, "spaced as json.dumps writes it"
    assert json.loads(text)["a"] in (1, 2)


def test_stop_ends_the_text_and_not_a_call(client):
    tool = {
        "type": "function",
        "function": {"name": "river", "parameters": {"const": {"name": "Elbe"}}},
    }
    arguments = {"messages": QUESTION, "tools": [tool], "parallel_tool_calls": False}
    called = chat(client, tool_choice="required", stop=["Elbe", "\n"], **arguments)
    assert called.choices[0].finish_reason == "tool_calls"
    assert json.loads(called.choices[0].message.tool_calls[0].function.arguments) == {"name": "Elbe"}
    free = chat(client, **arguments).choices[0].message.content or ""
    if len(free) > 12:
        stop = free[6:10]
        stopped = chat(client, stop=stop, **arguments)
        assert stopped.choices[0].message.content == free[: free.index(stop)].rstrip()
        assert stopped.choices[0].finish_reason == "stop"

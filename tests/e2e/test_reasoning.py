"""Reasoning sections end to end: what comes before `</think>` is free, and the format begins after it."""

import json

import openai
import pytest

import tiny
from conftest import ROOT, Server

MESSAGES = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
BEGUN = MESSAGES + "<think>\n"
SWITCH = MESSAGES + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}


class Thinker:
    """A server whose template is given, and what to bias so that the model writes `a`s and then `</think>`."""

    def __init__(self, directory, template):
        tokens = tiny.write_checkpoint(directory / "model", template)
        self.bias = {str(tokens["a"]): 40, str(tokens[tiny.CLOSE]): 37}
        self.server = Server(
            directory / "data", "--plugins-dir", ROOT / "dist" / "plugins",
            "--model", directory / "model", "--model-id", "tiny",
        )
        url = f"{self.server.url}/v1"
        self.client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=60)

    def ask(self, **arguments):
        messages = [{"role": "user", "content": "Is it warm?"}]
        arguments = {"max_tokens": 300, "temperature": 1, "logit_bias": self.bias, "seed": 3, **arguments}
        return self.client.chat.completions.create(model="tiny", messages=messages, **arguments)


@pytest.fixture(scope="module", params=["by the template", "by the model"])
def thinker(request, tmp_path_factory):
    template = {"by the template": BEGUN, "by the model": SWITCH}[request.param]
    thinker = Thinker(tmp_path_factory.mktemp("thinker"), template)
    yield thinker
    thinker.server.stop()


def reasoning(message):
    return (message.model_extra or {}).get("reasoning_content")


def test_the_format_begins_after_the_section(thinker):
    answer = thinker.ask(response_format=FORMAT)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "stop"
    assert set(reasoning(message)) == {"a"}, "the section is free"
    value = json.loads(message.content)
    assert value["city"] in ("Oslo", "Rome") and isinstance(value["warm"], bool)
    fields = answer.model_extra["formwork"]["fields"]
    assert [field["name"] for field in fields] == ["value"], "the section is no field"
    assert fields[0]["value"] == message.content
    assert fields[0]["enforced"]["validation"] == []


def test_a_stream_tells_reasoning_and_answer_apart(thinker):
    whole = thinker.ask(response_format=FORMAT).choices[0].message
    thought = text = ""
    for chunk in thinker.ask(response_format=FORMAT, stream=True):
        for choice in chunk.choices:
            thought += (choice.delta.model_extra or {}).get("reasoning_content") or ""
            assert not (choice.delta.content and not thought), "the answer comes after the reasoning"
            text += choice.delta.content or ""
    assert (thought, text) == (reasoning(whole), whole.content)


def test_a_section_that_is_cut_leaves_no_answer(thinker):
    only_a = {key: value for key, value in thinker.bias.items() if value == 40}
    answer = thinker.ask(response_format=FORMAT, logit_bias=only_a, max_tokens=20, temperature=0)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "length"
    assert not message.content
    assert set(reasoning(message)) == {"a"}


def test_tools_are_called_after_the_section(thinker):
    tool = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
    answer = thinker.ask(tools=[tool], tool_choice="required", parallel_tool_calls=False)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert set(reasoning(message)) == {"a"}
    assert json.loads(message.tool_calls[0].function.arguments)["city"] in ("Oslo", "Rome")


def test_where_no_thinking_will_occur_the_format_begins_at_once(tmp_path):
    thinker = Thinker(tmp_path, SWITCH)
    try:
        off = {"chat_template_kwargs": {"enable_thinking": False}}
        answer = thinker.ask(response_format=FORMAT, extra_body=off)
        message = answer.choices[0].message
        assert reasoning(message) is None
        json.loads(message.content)
        # All but the choices is forced: there was nothing before the value.
        assert answer.usage.completion_tokens == len(message.content.encode())
    finally:
        thinker.server.stop()

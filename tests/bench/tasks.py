"""What constraints cost: three tasks with a format and without, taken in turn on one server.

For each task and number of clients prints output tokens per second with the format, without it (the same
prompts, and as many tokens of each answer), their ratio and the share of tokens that were never sampled;
then what a field that has to be written again recomputes, against writing the whole answer again. Figures
are medians. Everything has a time limit; only the standard library is needed.
"""

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import statistics
import tempfile
import time
import urllib.error
import urllib.request

from server import FORMWORK, ROOT, Server, free_port

MODEL = "smollm2"
CLIENTS = [1, 8]
# Of the design: at least as fast as without a format, and faster where much of it is forced.
BUDGET, BUDGET_FORCED, MUCH_FORCED = 1.0, 1.5, 0.4

SQL = r"""
start: "SELECT " columns " FROM " TABLE (" WHERE " condition (" AND " condition)?)? (" ORDER BY " COLUMN " DESC"?)? (" LIMIT " NUMBER)? ";"
columns: "*" | "COUNT(*)" | COLUMN (", " COLUMN)?
condition: COLUMN " " OPERATOR " " value
value: NUMBER | TEXT
TABLE: "orders" | "customers" | "products"
COLUMN: "id" | "customer_id" | "name" | "city" | "price" | "quantity" | "created_at"
OPERATOR: "=" | "<>" | ">=" | "<=" | ">" | "<"
NUMBER: /[1-9][0-9]{0,4}/
TEXT: /'[A-Za-z ]{1,16}'/
"""

FORM = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "minLength": 1, "maxLength": 16},
        "last_name": {"type": "string", "minLength": 1, "maxLength": 16},
        "email_address": {"type": "string", "pattern": "^[a-z.]{1,16}@example\\.(com|org)$"},
        "date_of_birth": {"type": "string", "pattern": "^19[5-9][0-9]-[01][0-9]-[0-3][0-9]$"},
        "country_of_residence": {"enum": ["Austria", "France", "Germany", "Norway", "Spain"]},
        "preferred_language": {"enum": ["English", "French", "German", "Norwegian", "Spanish"]},
        "number_of_children": {"type": "integer", "minimum": 0, "maximum": 9},
        "receives_newsletter": {"type": "boolean"},
        "membership_level": {"enum": ["basic", "silver", "gold"]},
        "reason_for_application": {"type": "string", "minLength": 1, "maxLength": 60},
    },
    "additionalProperties": False,
}
FORM["required"] = list(FORM["properties"])

TASKS = {
    "ticket": (
        "Write the ticket for this message. Case {n}: I cannot see my last payment since Monday, "
        "the app only shows an error. My account is 4711-0823{n:02}. Please help.",
        {"plugin": {"name": "bench/ticket", "version": "1.0.0", "params": {}}},
    ),
    "SQL": (
        "Tables: orders(id, customer_id, price, quantity, created_at), customers(id, name, city), "
        "products(id, name, price). Write one SELECT statement. Question {n}: which orders over {n}00 "
        "of more than 3 pieces came last?",
        {"structured_outputs": {"grammar": SQL}},
    ),
    "form": (
        "Invent a member of a sports club and fill in the form as JSON. Member number {n}.",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "member", "schema": FORM, "strict": True},
            }
        },
    ),
}


class Formwork(Server):
    """With plugins and data of its own."""

    def __init__(self, formwork, model):
        port = free_port()
        self.data = tempfile.mkdtemp(prefix="formwork-tasks-")
        command = [formwork, "serve", "--model", model, "--model-id", MODEL]
        super().__init__([*command, "--port", port, "--data-dir", self.data], port, "/ready")

    def __exit__(self, *_):
        super().__exit__()
        shutil.rmtree(self.data, ignore_errors=True)

    def post(self, path, body, kind="application/json"):
        request = urllib.request.Request(
            self.url(path), data=body, headers={"content-type": kind}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read().decode()}") from error

    def publish(self, name, component):
        path = f"/v1/plugins?name={name}&version=1.0.0"
        self.post(path, component.read_bytes(), "application/wasm")

    def chat(self, content, tokens, **options):
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0.0,
            **options,
        }
        return self.post("/v1/chat/completions", json.dumps(body).encode())

    def metrics(self):
        with urllib.request.urlopen(self.url("/metrics"), timeout=10) as text:
            lines = [line.rsplit(" ", 1) for line in text.read().decode().splitlines()]
        return {name: float(value) for name, value in lines if not name.startswith("#")}


def together(pool, calls):
    """Answers to calls made at once, and the seconds that they took."""
    begin = time.monotonic()
    answers = list(pool.map(lambda call: call(), calls))
    return answers, time.monotonic() - begin


def written(answers):
    return [answer["usage"]["completion_tokens"] for answer in answers]


def compare(server, task, clients, rounds):
    """Speeds with the format and without, by round, and the share of tokens never sampled."""
    prompt, format_ = TASKS[task]
    speeds, free_speeds, sampled, total = [], [], 0, 0
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for turn in range(rounds):
            prompts = [prompt.format(n=turn * clients + client) for client in range(clients)]
            # The prompts' blocks are cached from here on, for both; the answers' lengths are known.
            first = list(pool.map(lambda text: server.chat(text, 300, **format_), prompts))
            lengths = written(first)
            for answer in first:
                if answer["choices"][0]["finish_reason"] != "stop":
                    raise RuntimeError(f"{task}: an answer is cut: {answer}")
            bound = [lambda text=text: server.chat(text, 300, **format_) for text in prompts]
            free = [
                lambda text=text, tokens=tokens: server.chat(text, tokens, ignore_eos=True)
                for text, tokens in zip(prompts, lengths, strict=True)
            ]
            # In turns, so that neither is always the one that runs second.
            order = [(bound, speeds), (free, free_speeds)]
            for calls, kept in order if turn % 2 == 0 else reversed(order):
                answers, seconds = together(pool, calls)
                if written(answers) != lengths:
                    raise RuntimeError(f"{task}: lengths differ: {written(answers)}, {lengths}")
                kept.append(sum(lengths) / seconds)
                if kept is speeds:
                    sampled += sum(one["formwork"]["usage"]["sampled"] for one in answers)
                    total += sum(lengths)
    return speeds, free_speeds, 1 - sampled / total


def retried_form(name):
    """A form of ten fields as a template; without and with a check that one of them fails once."""
    parts = []
    for number in range(10):
        parts.append({"literal": f'{"," if number else "{"}"colour_of_item_{number}":'})
        parts.append({"field": f"item_{number}", "regex": "[a-z ]{8,16}", "json": True})
    parts.append({"literal": "}"})
    field = next(part for part in parts if part.get("field") == name)
    field["check"] = {"min_length": 100}
    field["retry"] = {"attempts": 2, "heat": 0.0, "exhausted": "accept"}
    plain = [{key: part[key] for key in part if key not in ("check", "retry")} for part in parts]
    return [
        {"plugin": {"name": "formwork/template", "params": {"parts": chosen}}}
        for chosen in (plain, parts)
    ]


def positions(answer):
    """Positions that the output took, whatever of the prompt was cached."""
    usage = answer["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return answer["formwork"]["usage"]["computed"] + cached - usage["prompt_tokens"]


def retries(server, rounds):
    """Positions that one field's retry computes, and those that writing all of it again computes."""
    plain, checked = retried_form("item_8")
    again, whole = [], []
    for turn in range(rounds):
        text = f"Invent the colours of ten things in a drawer. Drawer number {turn}."
        once, twice = (server.chat(text, 300, **format_) for format_ in (plain, checked))
        attempts = {field["name"]: field["attempts"] for field in twice["formwork"]["fields"]}
        if attempts["item_8"] != 2:
            raise RuntimeError(f"the field was not retried: {attempts}")
        again.append(positions(twice) - positions(once))
        whole.append(positions(once))
    return statistics.median(again), statistics.median(whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a GGUF file, or a known name")
    parser.add_argument("--formwork", type=pathlib.Path, default=FORMWORK)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = []
    with Formwork(arguments.formwork, arguments.model) as server:
        server.publish("bench/ticket", ROOT / "dist/examples/examples--ticket@1.0.0.wasm")
        for task in TASKS:
            for clients in CLIENTS:
                bound, free, forced = compare(server, task, clients, arguments.rounds)
                pairs = zip(bound, free, strict=True)
                ratio = statistics.median(one / other for one, other in pairs)
                budget = BUDGET_FORCED if forced >= MUCH_FORCED else BUDGET
                speeds = statistics.median(bound), statistics.median(free)
                rows.append((task, clients, *speeds, ratio, forced, budget))
        again, whole = retries(server, arguments.rounds)
        metrics = server.metrics()
    unmasked = metrics.get("formwork_unmasked_tokens_total", 0.0)
    if arguments.json:
        names = ["task", "clients", "constrained", "free", "ratio", "forced", "budget"]
        retry = {"field": again, "whole": whole, "ratio": again / whole}
        tasks = [dict(zip(names, row, strict=True)) for row in rows]
        print(json.dumps({"tasks": tasks, "retry": retry, "unmasked": unmasked}))
        return
    print("TASK    CLIENTS  TOKENS/S   FREE   RATIO  FORCED  BUDGET")
    for task, clients, bound, free, ratio, forced, budget in rows:
        mark = "" if ratio >= budget else "  missed"
        print(
            f"{task:8}{clients:7}  {bound:8.0f}  {free:5.0f}  {ratio:6.2f}  {forced:5.0%}"
            f"  {budget:6.1f}{mark}"
        )
    print(
        f"a field's retry computes {again:.0f} positions, the whole answer {whole:.0f}:"
        f" {again / whole:.2f}"
    )
    print(f"tokens sampled outside a mask: {unmasked:.0f}")


if __name__ == "__main__":
    main()

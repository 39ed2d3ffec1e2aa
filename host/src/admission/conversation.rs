//! What the chat template is given: messages and tools, in the form that it knows.
//!
//! Calls are written as `<tool_call>{"name": …, "arguments": …}</tool_call>`. A template that tells the
//! model so itself is given the tools and the calls as they are; for any other the same is put into the
//! messages as text.

use formwork_model::{ChatInputs, ChatTemplate};
use serde_json::{Map, Value, json};

use super::prompt::{ChatPrompt, Specials, Taken};
use crate::api::{Message, Role, ToolChoice, ToolUse};
use crate::errors::ApiError;

/// How a call begins, by which a template is known to speak of calls in this form.
const CALL: &str = "<tool_call>";

/// Messages and tools for a template; whatever people said is protected.
pub(super) struct Conversation {
    /// An array of messages.
    pub(super) messages: Value,
    /// An array of tools, for templates that know them.
    pub(super) tools: Option<Value>,
}

impl Conversation {
    pub(super) fn of(
        prompt: &ChatPrompt<'_>,
        template: &ChatTemplate,
        taken: &mut Taken,
        specials: &Specials,
    ) -> Result<Self, ApiError> {
        let about_tools =
            |message: &Message| message.role == Role::Tool || !message.tool_calls.is_empty();
        let concerned = prompt.tools.is_some() || prompt.messages.iter().any(about_tools);
        let mut scribe = Scribe { taken, specials };
        let tools = match prompt.tools {
            None => None,
            Some(tools) => Some(scribe.taken.protect_all(&tools.definitions, specials)?),
        };
        if !concerned || knows_calls(template) {
            let messages = prompt.messages.iter().map(|message| scribe.native(message));
            return Ok(Self {
                messages: messages.collect::<Result<_, _>>()?,
                tools,
            });
        }
        let mut messages = Vec::new();
        for message in prompt.messages {
            scribe.fold(message, &mut messages)?;
        }
        if let (Some(definitions), Some(tools)) = (tools, prompt.tools) {
            introduce(&definitions, tools, &mut messages);
        }
        Ok(Self {
            messages: Value::Array(messages),
            tools: None,
        })
    }
}

/// Whether the template introduces tools, and calls in the form that they are written in here.
fn knows_calls(template: &ChatTemplate) -> bool {
    let messages = json!([{"role": "user", "content": "x"}]);
    let parameters = json!({"type": "object", "properties": {}});
    let tool = json!({"name": "f", "description": "", "parameters": parameters});
    let tools = json!([{"type": "function", "function": tool}]);
    let rendered = template.render(&ChatInputs {
        messages: &messages,
        tools: Some(&tools),
        add_generation_prompt: true,
        date: "2000-01-01",
        extra: Map::new(),
    });
    rendered.is_ok_and(|text| text.contains(CALL))
}

struct Scribe<'a> {
    taken: &'a mut Taken,
    specials: &'a Specials,
}

impl Scribe<'_> {
    fn protect(&mut self, text: &str) -> Result<String, ApiError> {
        self.taken.protect(text, self.specials)
    }

    /// The message as Hugging Face's templates expect it: arguments are values, not text.
    fn native(&mut self, message: &Message) -> Result<Value, ApiError> {
        let content = self.protect(&message.content)?;
        let mut rendered = json!({"role": message.role.name(), "content": content});
        if let Some(name) = &message.name {
            rendered["name"] = json!(name);
        }
        if let Some(reasoning) = &message.reasoning {
            rendered["reasoning_content"] = json!(self.protect(reasoning)?);
        }
        if let Some(id) = &message.tool_call_id {
            rendered["tool_call_id"] = json!(self.protect(id)?);
        }
        let mut calls = Vec::with_capacity(message.tool_calls.len());
        for call in &message.tool_calls {
            let arguments = match serde_json::from_str(&call.arguments) {
                Ok(value @ Value::Object(_)) => self.taken.protect_all(&value, self.specials)?,
                _ => json!(self.protect(&call.arguments)?),
            };
            let function = json!({"name": call.name, "arguments": arguments});
            let id = self.protect(&call.id)?;
            calls.push(json!({"id": id, "type": "function", "function": function}));
        }
        if !calls.is_empty() {
            rendered["tool_calls"] = Value::Array(calls);
        }
        Ok(rendered)
    }

    /// The message for a template that knows no tools.
    fn fold(&mut self, message: &Message, messages: &mut Vec<Value>) -> Result<(), ApiError> {
        if message.role == Role::Tool {
            let content = self.protect(&message.content)?;
            let text = format!("<tool_response>\n{content}\n</tool_response>");
            // Several answers in a row are one turn: many templates want turns to alternate.
            return match messages.last_mut() {
                Some(last) if last["role"] == "user" && is_answer(last) => {
                    let before = last["content"].as_str().unwrap_or_default();
                    last["content"] = json!(format!("{before}\n{text}"));
                    Ok(())
                }
                _ => {
                    messages.push(json!({"role": "user", "content": text}));
                    Ok(())
                }
            };
        }
        let mut plain = message.clone();
        plain.tool_calls.clear();
        let mut rendered = self.native(&plain)?;
        if !message.tool_calls.is_empty() {
            let mut text = rendered["content"].as_str().unwrap_or_default().to_owned();
            for call in &message.tool_calls {
                if !text.is_empty() {
                    text.push('\n');
                }
                let arguments = self.protect(&call.arguments)?;
                text += CALL;
                text += &format!(
                    "\n{{\"name\": \"{}\", \"arguments\": {arguments}}}",
                    call.name
                );
                text += "\n</tool_call>";
            }
            rendered["content"] = json!(text);
        }
        messages.push(rendered);
        Ok(())
    }
}

fn is_answer(message: &Value) -> bool {
    let content = message["content"].as_str();
    content.is_some_and(|text| text.starts_with("<tool_response>\n"))
}

/// Tells the model about the tools in the system's message.
fn introduce(definitions: &Value, tools: &ToolUse, messages: &mut Vec<Value>) {
    let mut text = String::from("These functions can be called, one JSON description per line:\n");
    for definition in definitions.as_array().into_iter().flatten() {
        text += &definition["function"].to_string();
        text.push('\n');
    }
    text += "A call of a function looks like this:\n<tool_call>\n\
             {\"name\": \"the function's name\", \"arguments\": {its arguments}}\n</tool_call>\n";
    text += match (tools.choice, tools.parallel) {
        (ToolChoice::Auto, true) => "Call functions where they help, else answer in words.",
        (ToolChoice::Auto, false) => "Call one function where it helps, else answer in words.",
        (ToolChoice::Required, true) => "Answer with one or several calls.",
        (ToolChoice::Required, false) => "Answer with one call.",
    };
    match messages.first_mut() {
        Some(first) if first["role"] == "system" => {
            let own = first["content"].as_str().unwrap_or_default();
            first["content"] = json!(format!("{own}\n\n{text}"));
        }
        _ => messages.insert(0, json!({"role": "system", "content": text})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ToolCall;

    const PLAIN: &str = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}";
    const KNOWING: &str = "{% if tools %}say <tool_call>: {{ tools | tojson }}{% endif %}\
        {% for m in messages %}[{{ m.role }}|{{ m.content }}{% for c in m.tool_calls %}\
        !{{ c.function.name }}={{ c.function.arguments | tojson }}{% endfor %}]{% endfor %}";

    fn message(role: Role, content: &str) -> Message {
        Message {
            role,
            content: content.to_owned(),
            name: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }

    fn rendered(source: &str, messages: &[Message], tools: Option<&ToolUse>) -> String {
        let template = ChatTemplate::new(source, "", "").unwrap();
        let variables = Map::new();
        let prompt = ChatPrompt {
            messages,
            tools,
            add_generation_prompt: false,
            variables: &variables,
            max_context: 1000,
            thinks_by_itself: false,
        };
        let mut taken = Taken::default();
        let specials = Specials::new(vec!["<|x|>".to_owned()]).unwrap();
        let spoken = Conversation::of(&prompt, &template, &mut taken, &specials).unwrap();
        let text = template.render(&ChatInputs {
            messages: &spoken.messages,
            tools: spoken.tools.as_ref(),
            add_generation_prompt: false,
            date: "2026-01-01",
            extra: Map::new(),
        });
        text.unwrap()
    }

    fn history() -> Vec<Message> {
        let mut calling = message(Role::Assistant, "");
        for (id, arguments) in [("1", r#"{"a":"<|x|>"}"#), ("2", "{broken")] {
            calling.tool_calls.push(ToolCall {
                id: id.to_owned(),
                name: "f".to_owned(),
                arguments: arguments.to_owned(),
            });
        }
        vec![
            message(Role::User, "q"),
            calling,
            message(Role::Tool, "r1"),
            message(Role::Tool, "r2 <|x|>"),
        ]
    }

    fn tools() -> ToolUse {
        ToolUse {
            definitions: json!([{"type": "function", "function": {"name": "f", "description": "<|x|>"}}]),
            choice: ToolChoice::Required,
            parallel: false,
        }
    }

    #[test]
    fn templates_that_know_tools_get_them() {
        let text = rendered(KNOWING, &history(), Some(&tools()));
        assert_eq!(
            text,
            "say <tool_call>: [{\"type\": \"function\", \"function\": {\"name\": \"f\", \
             \"description\": \"\u{F0000}\"}}][user|q][assistant|!f={\"a\": \"\u{F0000}\"}\
             !f=\"{broken\"][tool|r1][tool|r2 \u{F0000}]"
        );
    }

    #[test]
    fn others_get_text() {
        let text = rendered(PLAIN, &history(), Some(&tools()));
        let system = "[system|These functions can be called, one JSON description per line:\n\
            {\"name\":\"f\",\"description\":\"\u{F0000}\"}\nA call of a function looks like this:\n\
            <tool_call>\n{\"name\": \"the function's name\", \"arguments\": {its arguments}}\n\
            </tool_call>\nAnswer with one call.]";
        assert_eq!(
            text.strip_prefix(system).expect(&text),
            "[user|q][assistant|<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":\"\u{F0000}\"}}\n\
             </tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {broken}\n</tool_call>]\
             [user|<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2 \u{F0000}\n</tool_response>]"
        );
        let system = [message(Role::System, "be kind"), message(Role::User, "q")];
        let text = rendered(PLAIN, &system, Some(&tools()));
        assert!(
            text.starts_with("[system|be kind\n\nThese functions"),
            "{text}"
        );
        assert_eq!(rendered(PLAIN, &system, None), "[system|be kind][user|q]");
        let thinking =
            "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}{% endfor %}";
        let mut answer = message(Role::Assistant, "a");
        answer.reasoning = Some("hm <|x|>".to_owned());
        assert_eq!(rendered(thinking, &[answer], None), "hm \u{F0000}|a");
    }
}

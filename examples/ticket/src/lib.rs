//! A bank's support message becomes a ticket: a closed category, a priority, the account number as it
//! stands in the message, and a short summary.

use formwork_plugin_sdk::prelude::*;

pub struct Ticket {
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {}

impl Format for Ticket {
    type Params = Params;
    const PARAMS: &'static str = r#"{"type": "object", "additionalProperties": false}"#;

    fn open(_: Params, request: &Request) -> Result<Self, Failure> {
        let message = request.prompt_text();
        Ok(Ticket { message })
    }

    fn template(&self) -> Template {
        let message = self.message.clone();
        let account = Field::regex("account", "[0-9]{4}-[0-9]{6}")
            .check(move |number| match message.contains(&*number.text()) {
                true => Ok(()),
                false => Err("the message has no such account number"),
            })
            .retry(3)
            .heat(0.4)
            .or_accept();
        Template::new()
            .literal(r#"{"category":""#)
            .field(Field::choice(
                "category",
                ["card", "payment", "account", "login", "other"],
            ))
            .literal(r#"","priority":""#)
            .field(Field::choice(
                "priority",
                ["low", "normal", "high", "urgent"],
            ))
            .literal(r#"","account":""#)
            .field(account)
            .literal(r#"","summary":""#)
            .field(Field::json_text("summary", 10, 160))
            .literal(r#""}"#)
    }
}

formwork_plugin_sdk::export!(Ticket);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::testing::{Outcome, Trace};

    const MESSAGE: &str = "My card was swallowed in Elm Street. Account 4711-082351.";

    fn ticket(text: &str) -> Trace {
        Trace::of::<Ticket>(json!({})).prompt(MESSAGE).text(text)
    }

    fn with_account(number: &str) -> String {
        format!(
            r#"{{"category":"card","priority":"high","account":"{number}","summary":"Card \"lost\" in Elm Street."}}"#
        )
    }

    fn run(text: &str) -> Outcome {
        ticket(text).run()
    }

    #[test]
    fn a_message_becomes_a_ticket() {
        let text = with_account("4711-082351");
        let outcome = run(&text);
        outcome.assert_output(&text);
        outcome.assert_field("category", "card");
        outcome.assert_field("summary", r#"Card \"lost\" in Elm Street."#);
        let object: Json = serde_json_value(&outcome);
        assert_eq!(object["priority"], "high");
        assert_eq!(outcome.retries, 0);
    }

    fn serde_json_value(outcome: &Outcome) -> Json {
        formwork_plugin_sdk::serde_json::from_slice(&outcome.output).unwrap()
    }

    #[test]
    fn an_account_number_that_is_not_in_the_message_is_tried_again() {
        let outcome = ticket(&with_account("4711-082351"))
            .attempt("account", ["1234-567890", "4711-082351"])
            .run();
        outcome.assert_output(&with_account("4711-082351"));
        assert_eq!(outcome.field("account").attempts, 2);

        let outcome = ticket(&with_account("3333-333333"))
            .attempt("account", ["1111-111111", "2222-222222", "3333-333333"])
            .run();
        outcome.assert_output(&with_account("3333-333333"));
        assert!(!outcome.field("account").verified);
    }

    #[test]
    fn nothing_else_is_a_ticket() {
        run(r#"{"category":"cards""#).assert_rejected(17, r#"then "\",\"priority"#);
        run(r#"{"category":"loan""#).assert_rejected(15, r#"does not allow "a""#);
        run(&with_account("4711-08235x")).assert_rejected(58, r#"does not allow "x""#);
        let short =
            r#"{"category":"card","priority":"low","account":"4711-082351","summary":"Lost"}"#;
        run(short).assert_rejected(75, "field `summary` does not allow");
    }
}

//! JSON pointers into a schema, and the references that name them.

use serde_json::Value;

/// A step of a pointer, escaped.
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The pointer that a reference within the same resource names; `None` for any other reference.
///
/// `resource` is the pointer of the resource's root.
pub(super) fn local_target(resource: &str, reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#')?;
    if !fragment.is_empty() && !fragment.starts_with('/') {
        return None;
    }
    Some(format!("{resource}{}", percent_decode(fragment)?))
}

/// Undoes percent-encoding; `None` when the result is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| byte == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

/// Whether a subschema is the root of a resource of its own: what it calls itself.
pub(super) fn is_resource(schema: &Value) -> bool {
    ["$id", "id"].iter().any(|key| {
        let name = schema.get(key).and_then(Value::as_str);
        name.is_some_and(|name| !name.is_empty() && !name.starts_with('#'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_name_pointers() {
        let check = |resource: &str, reference: &str, target: Option<&str>| {
            let found = local_target(resource, reference);
            assert_eq!(found.as_deref(), target, "{reference}");
        };
        check("", "#", Some(""));
        check("", "#/a~1b/c%25d", Some("/a~1b/c%d"));
        check("/$defs/x", "#/a", Some("/$defs/x/a"));
        check("", "#/%zz%2", Some("/%zz%2"));
        check("", "#/%ff", None);
        check("", "#anchor", None);
        check("", "other#/a", None);
    }
}

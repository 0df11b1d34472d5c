//! Explains a URL: the steps of `tidegate explain URL`, of the configuration that serves.

use super::super::data::text_at;
use super::super::html::{Markup, Tone, small_text, state_badge};
use serde_json::Value;

/// The form and, if a URL was given, its explanation or why there is none.
pub fn explain_body(url: &str, told: Option<&Result<Value, String>>) -> Markup {
    let form = Markup::new().raw("<form method=\"get\" action=\"./#explain\" class=\"explain\"><label>URL or path <input type=\"text\" name=\"explain\" required maxlength=\"2048\" autocomplete=\"off\"");
    let form = form.attribute("value", url).raw("></label><button>Explain</button></form>");
    match told {
        None => form.raw("<p class=\"note\">Shows what the server does with a GET request, without passing it on. A path is one of this host.</p>"),
        Some(Err(why)) => form.raw("<p role=\"alert\">").add(state_badge(Tone::Bad, why)).raw("</p>"),
        Some(Ok(told)) => form.add(explained(told)),
    }
}

fn place(step: &Value) -> Markup {
    match (text_at(step, "file"), step.get("line").and_then(Value::as_u64)) {
        ("", _) | (_, None) => Markup::new(),
        (file, Some(line)) => Markup::new().raw(" ").add(small_text(format_args!("{file}:{line}"))),
    }
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn explained(told: &Value) -> Markup {
    let open = Markup::new().raw("<h3>").text(text_at(told, "request")).raw("</h3><ol class=\"steps\">");
    let steps = open.each(list(told, "steps"), |step| {
        let head = Markup::new()
            .raw("<li><b>")
            .text(text_at(step, "kind"))
            .raw("</b> ")
            .text(text_at(step, "text"))
            .add(place(step));
        let lines: Vec<&Value> = list(step, "directives").collect();
        if lines.is_empty() {
            return head.raw("</li>");
        }
        let inner = head.raw("<ul>").each(lines, |line| {
            Markup::new().raw("<li><code>").text(text_at(line, "text")).raw("</code>").add(place(line)).raw("</li>")
        });
        inner.raw("</ul></li>")
    });
    let end = match (told.get("passes").filter(|passes| passes.is_object()), told.get("status").and_then(Value::as_u64))
    {
        (Some(passes), _) => Markup::new()
            .raw("<li><b>proxied to</b> <code>")
            .text(text_at(passes, "text"))
            .raw("</code>")
            .add(place(passes))
            .raw("</li>"),
        (None, Some(status)) => Markup::new().raw("<li><b>response</b> ").text(status).raw("</li>"),
        (None, None) => Markup::new().raw("<li><b>response</b> none: the connection is closed</li>"),
    };
    let all = steps.add(end).raw("</ol>");
    let fields: Vec<&Value> = list(told, "headers").collect();
    let all = match fields.is_empty() {
        true => all,
        false => {
            let list = all.raw("<h3>Response fields</h3><ul class=\"plain\">").each(fields, |field| {
                let part = |index: usize| field.get(index).and_then(Value::as_str).unwrap_or_default();
                Markup::new().raw("<li><code>").text(part(0)).raw(": ").text(part(1)).raw("</code></li>")
            });
            list.raw("</ul>")
        }
    };
    let lines: Vec<&Value> = list(told, "in_force").collect();
    if lines.is_empty() {
        return all;
    }
    let list = all.raw("<h3>Effective directives</h3><ul class=\"plain\">").each(lines, |line| {
        Markup::new().raw("<li><code>").text(text_at(line, "text")).raw("</code>").add(place(line)).raw("</li>")
    });
    list.raw("</ul>")
}
